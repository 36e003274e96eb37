"""The things that all rooms speak of, as data with their rules and words: from a setting to its findings.

Planned: settings, runs, versions, sites, prices. Measured: records, metrics, profiles. Concluded: findings, claims,
projections, advice. Nothing here looks at a machine or starts a process. It needs pydantic and `base` only.
"""

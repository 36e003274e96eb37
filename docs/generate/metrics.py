"""Generates the page about metrics, from `accelsweep.metrics`."""

from __future__ import annotations

from tables import cell, code, table

from accelsweep.metrics import metrics
from accelsweep.tasks import rates_by_task

HEAD = """# Metrics

`record.json` contains these metrics, each with its unit and, if useful, its scope and provenance. A metric without a
value has a reason. MLflow uses the same names. Values that your module logs are recorded as `logged.NAME`.
[The method](../method.md) explains how each is measured.

"""

RATES = """Settings are compared by the first rate listed for their work, unless `analysis.rate` selects a different
one. The work is the task, except that `task=inference` with `measure.scenario=server` is called `serving`."""


def page() -> str:
    """Return the page, in Markdown."""
    rows = [[code(name), cell(meaning.unit), cell(meaning.description)] for name, meaning in metrics().items()]
    rates = [[code(task), ", ".join(map(code, rates))] for task, rates in rates_by_task().items()]
    tasks = f"\n## Rates\n\n{RATES}\n\n"
    return HEAD + table(["metric", "unit", "meaning"], rows) + tasks + table(["work", "rates"], rates)

"""Numbers that stand beside a sweep's findings and are none: projections, others' rows, profiles."""

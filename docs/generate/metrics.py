"""The page of metrics, from `accelsweep.metrics`."""

from __future__ import annotations

from tables import cell, code, table

from accelsweep.metrics import metrics
from accelsweep.tasks import rates_by_task

HEAD = """# Metrics

`record.json` holds these metrics, each with its unit and, where it helps, its scope and provenance. A metric without a
value has a reason. MLflow has the same names. Values that your module logs are there as `logged.NAME`.
[The method](../method.md) says how each is measured.

"""

RATES = """Settings are compared by the first rate of their work, unless `analysis.rate` names another. The work is
the task. Only `task=inference` with `measure.scenario=server` is called `serving`."""


def page() -> str:
    """Return the page, in Markdown."""
    rows = [[code(name), cell(meaning.unit), cell(meaning.description)] for name, meaning in metrics().items()]
    rates = [[code(task), ", ".join(map(code, rates))] for task, rates in rates_by_task().items()]
    tasks = f"\n## Rates\n\n{RATES}\n\n"
    return HEAD + table(["metric", "unit", "meaning"], rows) + tasks + table(["work", "rates"], rates)

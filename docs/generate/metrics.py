"""The page of metrics, from `accelsweep.core.recorded.metrics`."""

from __future__ import annotations

from tables import cell, code, table

from accelsweep.core.cells.tasks import RATES_OF
from accelsweep.core.recorded.metrics import METRICS

HEAD = """# Metrics

`record.json` holds these metrics, each with its unit and, where it helps, its scope and provenance. A metric without a
value has a reason. MLflow has the same names. Values that your module logs are there as `logged.NAME`.
[The method](../method.md) says how each is measured.

"""


def page() -> str:
    """Return the page, in Markdown."""
    rows = [[code(name), cell(meaning.unit), cell(meaning.tells)] for name, meaning in METRICS.items()]
    rates = [[code(task), ", ".join(map(code, rates))] for task, rates in RATES_OF.items()]
    tasks = "\n## Rates\n\nA task's settings are compared by its first rate, unless `analysis.rate` names another.\n\n"
    return HEAD + table(["metric", "unit", "meaning"], rows) + tasks + table(["task", "rates"], rates)

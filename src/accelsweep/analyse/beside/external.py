"""Imported rows beside merged sweeps: those of the same model and task. Nothing is computed from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from accelsweep.analysis.run_results import RunRow
from accelsweep.core.recorded.external import ExternalResults, RowBeside

TASK_WORDS = {"train_throughput": "training", "time_to_accuracy": "training", "inference": "inference"}
"""The word of external rows for each of our tasks."""


def rows_beside(runs: Iterable[RunRow], imported: Sequence[ExternalResults]) -> tuple[RowBeside, ...]:
    """Return the imported rows whose model is called like one of these runs' and whose task is theirs.

    Case and signs do not count: `ResNet50` is called like `resnet50`. Rows are in the order of model, device and value.
    """
    configs = [run.config for run in runs if run.config is not None]
    wanted = {(_plain(one.model_target.rpartition(".")[2]), TASK_WORDS.get(one.task)) for one in configs}
    found = [
        RowBeside(source=one.source, file=one.file, row=row)
        for one in imported
        for row in one.rows
        if (_plain(row.model), row.task) in wanted
    ]
    return tuple(sorted(found, key=lambda one: (one.row.model, one.row.device, one.row.value)))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())

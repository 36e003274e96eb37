"""Imported rows stand beside merged sweeps where model and task are the same, and change no number."""

from accelsweep.features.imports.model import ExternalResults, ExternalRow
from accelsweep.features.imports.report import rows_beside


def published(*rows: tuple[str, str]) -> ExternalResults:
    """Return a file of rows with these models and tasks."""
    found = tuple(
        ExternalRow(model=model, task=task, value=100.0 + at, unit="1/s", device="RTX 3090")
        for at, (model, task) in enumerate(rows)
    )
    return ExternalResults(source="timm", file="benchmark.csv", sha256="0" * 64, rows=found)


def test_rows_of_the_same_model_and_task_are_shown(simulated):
    config = {"model": {"_target_": "accelsweep.workloads.image_models.ResNet50"}}
    run = simulated.make_run({"batch_size": 32}, 0, 10.0, config=config)
    others = published(("resnet50", "training"), ("resnet50", "inference"), ("resnet50d", "training"))
    (only,) = rows_beside([run], [others])
    assert (only.source, only.row.model, only.row.task) == ("timm", "resnet50", "training")
    assert rows_beside([run], []) == ()

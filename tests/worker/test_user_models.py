"""What user code may lack or do: it works, or the reason says what to change."""

from __future__ import annotations

import itertools

import pytest
import torch
from one_rank import BOTH_LOOPS, MEASURE, SGD
from own_models import BATCH_SIZE, BEGIN, CASES, DOCUMENT, END, PRELUDE, WORKS, table

pytestmark = pytest.mark.real

NUMBERS = itertools.count()
QUICK = {
    **MEASURE,
    "warmup_steps": 2,
    "min_steps": 8,
    "max_steps": 12,
    "min_seconds": 0.0,
    "probe_steps": 2,
    "quality_samples": 64,
    "quality_metric": "val_accuracy",
}


@BOTH_LOOPS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_user_code_works_or_fails_with_a_remedy(case, loop, run, tmp_path):
    name = f"own_code_{next(NUMBERS)}"
    given = "Own" if "class Own(" in case.code else "Module"
    data = "OwnData" if "class OwnData(" in case.code else "Data"
    (tmp_path / f"{name}.py").write_text(PRELUDE + case.code)
    result = run(
        loop=loop,
        batch_size=BATCH_SIZE,
        model={"_target_": f"{name}.{given}", **(case.model or {})},
        data=case.data or {"_target_": f"{name}.{data}"},
        optimizer=SGD,
        measure=QUICK,
        axes=case.axes,
    )
    if case.expected(loop) != WORKS:
        assert case.expected(loop) in (result.reason or "no reason")
        return
    assert (result.outcome, result.reason) == ("measured", None)
    quality = result.metrics["quality"]
    if case.quality is None:
        assert quality.value is not None, quality.reason
    else:
        assert case.quality in (quality.reason or "no reason")


def test_the_documentation_lists_these_cases():
    """Where this fails: python tests/fakes/own_models.py."""
    _, _, rest = DOCUMENT.read_text().partition(BEGIN)
    assert rest.partition(END)[0].strip() == table().strip()


@BOTH_LOOPS
def test_parameters_of_another_dtype_are_never_recorded_as_the_configs_precision(run, loop, tmp_path):
    """torch.set_default_dtype in the user's code. The raw loop casts module and inputs, so its record is true."""
    (tmp_path / "own_wide.py").write_text(f"import torch\ntorch.set_default_dtype(torch.float64)\n{PRELUDE}")
    try:
        own = {"model": {"_target_": "own_wide.Module"}, "data": {"_target_": "own_wide.Data"}}
        result = run(loop=loop, batch_size=BATCH_SIZE, optimizer=SGD, measure=QUICK, **own)
    finally:
        torch.set_default_dtype(torch.float32)
    if loop == "raw":
        assert (result.outcome, result.effective.precision) == ("measured", "32-true")
    else:
        assert result.outcome == "unsupported"
        assert "precision=32-true, but Module trains parameters of torch.float64" in result.reason
        assert result.reason.endswith("or set precision=64-true")


ROWS = """
import torch
from torch.utils.data import TensorDataset
class Rows(TensorDataset):
    def __init__(self):
        super().__init__(torch.randn(400, 3), torch.randint(2, (400,)))
"""


def test_the_command_suggested_for_a_plain_network_trains_it(run, tmp_path):
    from accelsweep.planning.plan import make_plan

    (tmp_path / "own_rows.py").write_text(ROWS)
    data = {"_target_": "accelsweep.workloads.user_datasets.DataSets", "train": {"_target_": "own_rows.Rows"}}
    plain = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 2}
    told = run(model=plain, data=data, measure=QUICK).reason
    command = told.partition("train it with: ")[2].partition(" (or")[0].split()
    rest = ["accelerator=cpu", "data=dataset", "data.train._target_=own_rows.Rows"]
    (setting,) = make_plan(tmp_path, [*command, *rest]).settings
    result = run(model=setting.config.model, data=setting.config.data, measure=QUICK)
    assert (result.outcome, result.reason) == ("measured", None)

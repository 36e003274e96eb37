"""`trainer.strategy=side_by_side`: ranks that train at the same time and share nothing."""

from __future__ import annotations

import pytest
from one_rank import MEASURE, run_ranks

from accelsweep.results import Outcome

OPPOSED = "import os; return self.weight.sum() * (1 if os.environ['RANK'] == '0' else -10)"
"""What rank 0 makes smaller, rank 1 makes larger, and ten times as strongly."""


@pytest.mark.real
def test_ranks_side_by_side_exchange_no_gradients_and_measure_together(spec, own_module, tmp_path) -> None:
    """Under DDP the mean of both gradients would make rank 0's loss grow from 1."""
    measure = {**MEASURE, "probe_steps": 4}
    made = spec(devices=2, model=own_module(OPPOSED), trainer={"strategy": "side_by_side"}, measure=measure)
    first, second = run_ranks(made, tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert (first.effective.strategy, first.effective.world_size) == ("side_by_side", 2)
    assert first.metrics["window_samples"].value == 2 * 8 * first.metrics["window_steps"].value
    assert first.metrics["final_train_loss"].value < 1.0
    assert first.metrics["communication_share"].value is not None, "told apart, although it is nothing"

"""`trainer.strategy=fsdp` on a CPU's processes, and ranks that train side by side without exchanging gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_rank import DIGITS, MEASURE, MLP, run_ranks

from accelsweep.results import Outcome

TRAINED = {"warmup_steps": 4, "min_steps": 8, "min_seconds": 0.05, "max_steps": 8, "quality_samples": 160}
BY_CLASS = {
    "_target_": "accelsweep.worker.loops.strategies.FullySharded",
    "auto_wrap_policy": {
        "_target_": "torch.distributed.fsdp.wrap.size_based_auto_wrap_policy",
        "_partial_": True,
        "min_num_params": 1000,
    },
    "activation_checkpointing_policy": {
        "_target_": "torch.distributed.fsdp.wrap.ModuleWrapPolicy",
        "module_classes": [{"_target_": "hydra.utils.get_class", "path": "torch.nn.Linear"}],
    },
}
"""Two parts of the module on their own, and what each Linear computed is computed again."""


@pytest.mark.real
@pytest.mark.timing  # beside other tests, both ranks may be idle for so long that the result of the pass is withheld
def test_two_ranks_shard_a_module_and_validate_it(spec, tmp_path) -> None:
    """The strategy is given by its class: the ranks must have found each other before Lightning looks at it."""
    made = spec(
        devices=2,
        model=MLP,
        data=DIGITS,
        trainer={"strategy": BY_CLASS},
        measure={**TRAINED, "probe_steps": 3, "quality_metric": "val_loss"},
    )
    first, second = run_ranks(made, tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert first.effective.strategy == "fsdp"
    kept, whole = first.metrics["rank_parameter_bytes"], 4 * first.metrics["parameters"].value
    assert whole / 2 <= kept.value <= whole / 2 + 64
    assert kept.scope.startswith("the fullest of 2 ranks; all ranks together store 59")
    assert first.metrics["quality"].value == pytest.approx(2.302, abs=0.01)
    assert "cannot train without exchange" in first.metrics["communication_share"].reason
    assert first.breakdown.verdict.startswith(("compute-bound or communication-bound", "overhead-bound"))


def test_fsdp_on_one_rank_keeps_all_parameters(run) -> None:
    result = run(model=MLP, data=DIGITS, trainer={"strategy": "fsdp"}, measure={**TRAINED, "probe_steps": None})
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective.strategy == "fsdp"
    assert result.metrics["rank_parameter_bytes"].value == 4 * result.metrics["parameters"].value


@pytest.mark.real
@pytest.mark.long  # ten trainings on two ranks; the first test above fails where the strategy does not train
@pytest.mark.parametrize(
    ("changes", "trainer"),
    [
        ({}, {}),
        ({}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
        ({}, {"plugins": [{"_target_": "lightning.pytorch.plugins.io.TorchCheckpointIO"}]}),
        ({"precision": "bf16-mixed"}, {}),
        ({}, {"strategy": BY_CLASS}),
    ],
    ids=["plain", "accumulated and clipped", "plugins", "bf16-mixed", "in parts, recomputed"],
)
def test_sharding_changes_neither_the_loss_nor_the_quality(spec, tmp_path, changes, trainer) -> None:
    found = []
    for strategy in ("ddp", "fsdp"):
        folder = tmp_path / strategy
        folder.mkdir()
        own = trainer if strategy == "fsdp" else {key: trainer[key] for key in trainer if key != "strategy"}
        made = replace(
            spec(
                devices=2,
                model=MLP,
                data=DIGITS,
                trainer={"strategy": strategy, **own},
                measure={**TRAINED, "probe_steps": None, "quality_metric": "val_loss"},
                **changes,
            ),
            attempt_folder=str(folder),
        )
        first, _ = run_ranks(made, folder)
        assert first.outcome is Outcome.measured, first.traceback
        found.append([first.metrics[name].value for name in ("final_train_loss", "quality")])
    tolerance = 1e-3 if "precision" in changes else 1e-6
    assert found[1] == pytest.approx(found[0], rel=tolerance)


OPPOSED = "import os; return self.weight.sum() * (1 if os.environ['RANK'] == '0' else -10)"
"""What rank 0 makes smaller, rank 1 makes larger, and ten times as strongly."""


@pytest.mark.real
def test_side_by_side_ranks_exchange_no_gradients_but_share_a_window(spec, own_module, tmp_path) -> None:
    """Under DDP the mean of both gradients would make rank 0's loss grow from 1."""
    measure = {**MEASURE, "probe_steps": 4}
    made = spec(devices=2, model=own_module(OPPOSED), trainer={"strategy": "independent_ranks"}, measure=measure)
    first, second = run_ranks(made, tmp_path)
    assert (first.outcome, second.outcome) == (Outcome.measured, Outcome.measured), first.traceback
    assert (first.effective.strategy, first.effective.world_size) == ("independent_ranks", 2)
    assert first.metrics["window_samples"].value == 2 * 8 * first.metrics["window_steps"].value
    assert first.metrics["final_train_loss"].value < 1.0
    assert first.metrics["communication_share"].value is not None, "told apart, although it is nothing"

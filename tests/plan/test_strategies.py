"""What a strategy cannot train stays in the plan as a row with its reason."""

import pytest
from tiny_sweep import config_with

from accelsweep.config.site import Site
from accelsweep.devices.device_kind import Device
from accelsweep.planning.unsupported import why_unsupported

HERE = Site(
    name="here",
    probe=True,
    inventory=tuple(Device(accelerator=kind, model="m", count=2) for kind in ("cpu", "cuda", "xpu")),
)
ELSEWHERE = HERE.model_copy(update={"probe": False})
LIGHTNINGS = {"_target_": "lightning.pytorch.strategies.FSDPStrategy"}
OURS = {"_target_": "accelsweep.worker.loops.strategies.FullySharded"}

PRECISION = {"_target_": "lightning.pytorch.plugins.HalfPrecision", "precision": "bf16-true"}


def reason(strategy, site=ELSEWHERE, accelerator="cpu", trainer=None, **changes):
    made = {
        "loop": "lightning",
        "accelerator": accelerator,
        "devices": 2,
        "trainer": {"strategy": strategy, **(trainer or {})},
    }
    return why_unsupported(config_with(**{**made, **changes}), site)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (reason("fsdp", accelerator="xpu"), "shards a model over CUDA devices or CPU processes"),
        (reason("fsdp_cpu_offload"), "on a CPU use trainer.strategy=fsdp"),
        (reason({**OURS, "cpu_offload": True}), "on a CPU use trainer.strategy=fsdp"),
        (reason(LIGHTNINGS), f"{OURS['_target_']} takes the same arguments"),
        (reason("fsdp", precision="64-true"), "has no precision=64-true"),
        (reason("fsdp", trainer={"gradient_clip_val": 1.0}), "+trainer.gradient_clip_algorithm=value"),
        (reason("fsdp", loop="raw"), "loop=raw has no trainer.strategy=fsdp: use loop=lightning"),
        (reason("auto", loop="raw", trainer={"accumulate_grad_batches": 2}), "loop=raw has no trainer.accumulate"),
        (reason("auto", trainer={"plugins": [PRECISION]}), "is decided by the top-level key precision"),
        (reason("deepspeed_stage_2"), "trains on CUDA devices only"),
        (
            reason(
                "deepspeed",
                accelerator="cuda",
                trainer={"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"},
            ),
            "clips by norm only",
        ),
    ],
)
def test_what_a_strategy_cannot_train_has_a_sentence(found, words):
    assert words in found


@pytest.mark.parametrize(
    "found",
    [
        reason("fsdp"),
        reason(OURS),
        reason("fsdp", trainer={"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}),
        reason("fsdp", trainer={"accumulate_grad_batches": 4}),
        reason("fsdp", accelerator="cuda", precision="16-mixed"),
        reason("fsdp_cpu_offload", accelerator="cuda"),
        reason(LIGHTNINGS, accelerator="cuda"),
        reason("ddp", loop="raw"),
        reason("deepspeed", accelerator="cuda", trainer={"gradient_clip_val": 1.0}),
        reason("side_by_side"),
        reason("fsdp", trainer={"plugins": [{"_target_": "lightning.pytorch.plugins.io.TorchCheckpointIO"}]}),
    ],
)
def test_what_it_can_has_none(found):
    assert found is None


def test_only_where_this_machine_measures_is_it_asked_for_deepspeed(monkeypatch):
    monkeypatch.setattr("accelsweep.planning.unsupported.find_spec", lambda name: None)
    assert reason("deepspeed", HERE, "cuda").endswith("needs the package deepspeed: pip install deepspeed")
    assert reason("deepspeed", ELSEWHERE, "cuda") is None
    monkeypatch.setattr("accelsweep.planning.unsupported.find_spec", lambda name: object())
    assert reason("deepspeed", HERE, "cuda") is None

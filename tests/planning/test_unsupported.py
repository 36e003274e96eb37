"""Settings that cannot run at a site stay in the plan with a reason; what `auto` stands for."""

import pytest
from tiny_sweep import config_with

from accelsweep.config.site import Site, Slurm
from accelsweep.devices.device_kind import Device
from accelsweep.planning.unsupported import resolve_auto, why_unsupported

CPU = Device(accelerator="cpu", model="CPU", count=4)
CUDA = Device(accelerator="cuda", model="GPU", count=2)
XPU = Device(accelerator="xpu", model="Intel Data Center GPU Max 1550", count=2)
MPS = Device(accelerator="mps", model="M", count=1)


def site(*devices, nodes=1, scheduler="local"):
    return Site(name="here", inventory=devices, nodes=nodes, scheduler=scheduler)


def config(accelerator, precision="32-true", devices=1, num_nodes=1):
    return config_with(accelerator=accelerator, precision=precision, devices=devices, num_nodes=num_nodes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (config("cpu", "16-mixed"), "bf16-mixed"),
        (config("cpu", "transformer-engine"), "needs cuda"),
        (config("mps", "transformer-engine-float16"), "needs cuda"),
        (config("mps", "64-true"), "64-bit"),
        (config("mps", devices=2), "one device"),
        (config("cuda", devices=3), "3 CUDA devices"),
        (config("xpu", devices=3), "3 XPU devices"),
        (config("xpu", "transformer-engine"), "needs cuda"),
        (config("cpu", devices=5), "5 CPU cores"),
        (config("cpu", num_nodes=2), "single machine"),
    ],
)
def test_unsupported_settings_have_a_reason(settings, words):
    assert words in why_unsupported(settings, site(CPU, CUDA, XPU, MPS))


@pytest.mark.parametrize(
    "settings",
    [
        config("cpu", "bf16-mixed", 4),
        config("cpu", "64-true"),
        config("cpu", "16-true"),
        config("cuda", "16-mixed", 2),
        config("cuda", "transformer-engine"),
        config("xpu", "bf16-mixed", 2),
        config("xpu", "64-true"),
        config("mps", "16-mixed"),
    ],
)
def test_supported_settings_have_none(settings):
    assert why_unsupported(settings, site(CPU, CUDA, XPU, MPS)) is None


def test_an_absent_accelerator_is_named_with_the_site():
    assert why_unsupported(config("cuda"), site(CPU)) == "the site 'here' has no CUDA devices"


def test_nodes_are_bounded_by_the_site():
    cluster = site(CPU, nodes=2, scheduler="slurm")
    assert "3 nodes" in why_unsupported(config("cpu", num_nodes=3), cluster)


def test_a_setting_of_several_nodes_is_supported_on_a_cluster_that_has_them():
    cluster = site(CPU, nodes=2, scheduler="slurm")
    assert why_unsupported(config("cpu", num_nodes=2), cluster) is None
    contained = cluster.model_copy(update={"slurm": Slurm(container="apptainer exec image.sif")})
    assert why_unsupported(config("cpu", num_nodes=2), contained) is None


@pytest.mark.parametrize(
    ("devices", "accelerator"),
    [
        ((CPU, XPU, CUDA, MPS), "cuda"),
        ((CPU, MPS, XPU), "xpu"),
        ((CPU, MPS), "mps"),
        ((CPU,), "cpu"),
        ((), "cpu"),
    ],
)
def test_auto_takes_the_first_accelerator_that_the_site_has(devices, accelerator):
    assert resolve_auto(site(*devices)) == accelerator


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
        (reason("fsdp_cpu_offload"), "on a CPU, use trainer.strategy=fsdp"),
        (reason({**OURS, "cpu_offload": True}), "on a CPU, use trainer.strategy=fsdp"),
        (reason(LIGHTNINGS), f"{OURS['_target_']} takes the same arguments"),
        (reason("fsdp", precision="64-true"), "has no precision=64-true"),
        (reason("fsdp", trainer={"gradient_clip_val": 1.0}), "+trainer.gradient_clip_algorithm=value"),
        (reason("fsdp", loop="raw"), "loop=raw has no trainer.strategy=fsdp: use loop=lightning"),
        (reason("auto", loop="raw", trainer={"accumulate_grad_batches": 2}), "loop=raw has no trainer.accumulate"),
        (reason("auto", trainer={"plugins": [PRECISION]}), "is controlled by the top-level key precision"),
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
def test_settings_that_a_strategy_cannot_train_have_a_reason(found, words):
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
        reason("independent_ranks"),
        reason("fsdp", trainer={"plugins": [{"_target_": "lightning.pytorch.plugins.io.TorchCheckpointIO"}]}),
    ],
)
def test_settings_that_a_strategy_can_train_have_none(found):
    assert found is None


def test_deepspeed_is_looked_for_only_on_the_measuring_machine(monkeypatch):
    monkeypatch.setattr("accelsweep.planning.unsupported.find_spec", lambda name: None)
    assert reason("deepspeed", HERE, "cuda").endswith("needs the package deepspeed: pip install deepspeed")
    assert reason("deepspeed", ELSEWHERE, "cuda") is None
    monkeypatch.setattr("accelsweep.planning.unsupported.find_spec", lambda name: object())
    assert reason("deepspeed", HERE, "cuda") is None

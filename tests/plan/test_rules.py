"""What the plan alone rules out, and what `auto` stands for."""

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
def test_impossible_settings_have_a_reason(settings, words):
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
def test_possible_settings_have_none(settings):
    assert why_unsupported(settings, site(CPU, CUDA, XPU, MPS)) is None


def test_an_absent_accelerator_is_named_with_the_site():
    assert why_unsupported(config("cuda"), site(CPU)) == "the site 'here' has no CUDA devices"


def test_nodes_are_bounded_by_the_site():
    cluster = site(CPU, nodes=2, scheduler="slurm")
    assert "3 nodes" in why_unsupported(config("cpu", num_nodes=3), cluster)


def test_a_setting_of_several_nodes_needs_a_cluster_that_has_them_and_srun():
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
def test_auto_takes_the_fastest_kind_the_site_has(devices, accelerator):
    assert resolve_auto(site(*devices)) == accelerator

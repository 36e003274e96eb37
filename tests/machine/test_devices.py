"""All kinds of devices stand behind one interface, and one place chooses among them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_nvml import FakeGpu

from accelsweep.devices import inventory as inventory_
from accelsweep.devices import mps
from accelsweep.devices.backend import DeviceKind, Gpu
from accelsweep.devices.inventory import KINDS, device_name, hardware, inventory, kind_of, variables
from accelsweep.devices.mps import MpsKind


def test_each_kind_is_found_by_the_word_that_configs_have():
    assert [kind_of(kind.accelerator) for kind in KINDS] == list(KINDS)
    with pytest.raises(ValueError, match="no kind of device is called 'gpu'; known are cpu, cuda, xpu, mps, simulated"):
        kind_of("gpu")


def test_the_processor_comes_first_and_has_a_name_cores_and_memory(gpus):
    gpus(FakeGpu("GPU-1"))
    cpu, gpu = inventory()
    assert (cpu.accelerator, gpu.accelerator) == ("cpu", "cuda")
    assert cpu.model
    assert cpu.count >= 1


def test_a_run_is_shown_its_own_devices_and_none_of_another_kind(gpus):
    gpus(FakeGpu("GPU-1"), FakeGpu("GPU-2"))
    assert variables("cuda", ["1", "0"]) == {"CUDA_VISIBLE_DEVICES": "1,0"}
    for other in ("cpu", "mps"):
        assert variables(other, []) == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_hardware_of_a_cpu_run_is_the_same_with_a_gpu_beside_it(gpus):
    gpus(FakeGpu("GPU-1", "H100"))
    assert hardware("cpu") == {}
    assert hardware("cuda") == hardware(None) == {"device": "H100", "driver": "570.1"}


def test_only_kinds_whose_devices_are_handed_out_have_names_for_them(gpus):
    gpus()
    assert {kind.accelerator: kind.named() for kind in KINDS} == {
        "cpu": None,
        "cuda": {},
        "xpu": {},
        "mps": None,
        "simulated": {},
    }


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_only_an_apple_silicon_mac_has_apples_gpu(monkeypatch, system, machine):
    monkeypatch.setattr(mps.platform, "system", lambda: system)
    monkeypatch.setattr(mps.platform, "machine", lambda: machine)
    assert MpsKind().inventory() == ()


def test_an_apple_gpu_has_one_name_in_plan_and_record_and_its_processors_memory(monkeypatch):
    import torch

    monkeypatch.setattr(mps.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(mps.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(mps, "cpu_model", lambda: "Apple M3")
    monkeypatch.setattr(mps, "memory_bytes", lambda: 2**34)
    (device,) = MpsKind().inventory()
    assert (device.accelerator, device.model, device.count, device.memory_bytes) == ("mps", "Apple M3 GPU", 1, 2**34)
    assert device_name(torch.device("mps")) == device.model


def test_another_kind_of_device_is_one_more_entry(monkeypatch):
    class Npu(DeviceKind):
        accelerator, heeds = "npu", ("NPU_",)

        def gpus(self):
            return (Gpu("0", "NPU-0", "Npu 1", 2**30), Gpu("1", "NPU-1", "Npu 1", 2**30))

        def variables(self, names):
            return {"NPU_VISIBLE": ",".join(names)}

        def hardware(self):
            return {"npu": "one"}

    monkeypatch.setattr(inventory_, "KINDS", (*KINDS, Npu()))
    assert inventory_.variables("npu", ["0"]) == {"CUDA_VISIBLE_DEVICES": "", "NPU_VISIBLE": "0"}
    assert inventory_.hardware("npu") == {"npu": "one"}
    assert (Npu().named(), Npu().models()) == ({"0": "NPU-0", "1": "NPU-1"}, {"0": "Npu 1", "1": "Npu 1"})
    assert "NPU_" in inventory_.heeded()


def test_a_kind_of_which_nothing_is_known_has_no_devices_and_hides_none():
    class Unknown(DeviceKind):
        accelerator = "npu"

    kind = Unknown()
    assert (kind.inventory(), kind.named(), kind.watched()) == ((), None, ())
    assert kind.models() == kind.variables(["0"]) == kind.hardware() == {}
    assert kind.refuses("bf16-mixed") is None


def test_looking_at_the_machine_imports_no_torch():
    code = (
        "import sys; from accelsweep.devices.inventory import inventory; inventory(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""All kinds of device have one interface, and `kinds` finds and asks them."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fake_nvml import FakeGpu

from accelsweep.config.site import Site
from accelsweep.config.value_errors import validated
from accelsweep.devices import device_kind, kinds, mps
from accelsweep.devices.device_kind import Device, DeviceKind, Gpu, torch_is_built_for_rocm
from accelsweep.devices.kinds import (
    AUTO_ACCELERATORS,
    KINDS,
    accelerator_with_alias,
    device_name,
    hardware_fingerprint,
    inventory,
    kind_of,
    kind_or_unknown,
    visibility_variables,
)
from accelsweep.devices.mps import MpsKind
from accelsweep.errors import InputError, NewerFile
from accelsweep.json_documents import Document
from accelsweep.plain_json import canonical_json, sha256_text


def test_a_site_validates_its_devices_strictly_and_dumps_them_as_plain_json():
    device = {"accelerator": "cpu", "model": 7763, "count": "64"}
    (read,) = Site(name="s", inventory=[device]).inventory
    assert read == Device("cpu", "7763", 64)
    dumped = Site(name="s", inventory=[read]).model_dump(mode="json")["inventory"]
    assert dumped == [{"accelerator": "cpu", "model": "7763", "count": 64, "memory_bytes": None, "emulates": []}]
    for wrong, message in (
        ({"count": 1.5}, r"inventory\.0\.count=1\.5: must be a valid integer"),
        ({"accelerator": "gpu"}, r"unknown device kind 'gpu' \(did you mean 'cuda'\?\); choose one of: cpu, cuda"),
        ({"memori_bytes": 1}, r"unknown key 'site\.inventory\.0\.memori_bytes' \(did you mean 'memory_bytes'\?\)"),
    ):
        with pytest.raises(InputError, match=message):
            validated(Site, {"name": "s", "inventory": [device | wrong]}, "site", str)


def test_an_unknown_key_of_a_device_in_a_document_is_ascribed_to_another_version(tmp_path):
    class Place(Document):
        kind: ClassVar[str] = "place"
        device: Device

    content = Place(device=Device("cpu", "m", 1)).sealed()
    assert Place.unsealed(content, tmp_path).device.count == 1
    body = {"device": {"accelerator": "cpu", "model": "m", "count": 1, "colour": "red"}}
    envelope = {"accelsweep": "place", "format": 1, "sha256": sha256_text(canonical_json(body)), "body": body}
    with pytest.raises(NewerFile, match=r"which does not know its 'device\.colour'"):
        Place.unsealed(canonical_json(envelope).encode(), tmp_path)


def test_every_kind_is_found_by_its_name_in_configs():
    assert [kind_of(kind.accelerator) for kind in KINDS.values()] == list(KINDS.values())
    with pytest.raises(ValueError, match="no kind of device is called 'gpu'; known are cpu, cuda, mps, xpu, simulated"):
        kind_of("gpu")


def test_auto_tries_gpus_in_a_fixed_order_and_never_the_simulated_device():
    assert AUTO_ACCELERATORS == ("cuda", "xpu", "mps")


def test_names_of_other_tools_lead_to_the_kind():
    assert [accelerator_with_alias(alias) for alias in ("gpu", "rocm", "tpu")] == ["cuda", "cuda", None]


def test_labels_of_mixed_kinds_are_neutral():
    assert (kind_or_unknown("cuda").units, kind_or_unknown(None).units) == ("GPUs", "devices")


def test_the_processor_comes_first_and_has_a_name_and_cores(gpus):
    gpus(FakeGpu("GPU-1"))
    cpu, gpu = inventory()
    assert (cpu.accelerator, gpu.accelerator) == ("cpu", "cuda")
    assert cpu.model
    assert cpu.count >= 1


def test_a_run_is_shown_its_own_devices_and_none_of_another_kind(gpus):
    gpus(FakeGpu("GPU-1"), FakeGpu("GPU-2"))
    assert visibility_variables("cuda", ["1", "0"]) == {"CUDA_VISIBLE_DEVICES": "1,0"}
    for other in ("cpu", "mps"):
        assert visibility_variables(other, []) == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_fingerprint_of_a_cpu_run_does_not_depend_on_gpus(gpus):
    gpus(FakeGpu("GPU-1", "H100"))
    assert hardware_fingerprint("cpu") == {}
    assert hardware_fingerprint("cuda") == hardware_fingerprint(None) == {"device": "H100", "driver": "570.1"}


def test_only_devices_that_are_leased_one_by_one_are_listed_one_by_one(gpus):
    gpus()
    assert {name: kind.gpus() for name, kind in KINDS.items()} == {
        "cpu": None,
        "cuda": (),
        "mps": None,
        "xpu": (),
        "simulated": (),
    }


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_only_an_apple_silicon_mac_has_apples_gpu(monkeypatch, system, machine):
    monkeypatch.setattr(mps.platform, "system", lambda: system)
    monkeypatch.setattr(mps.platform, "machine", lambda: machine)
    assert MpsKind().inventory() == ()


def test_an_apple_gpu_has_one_name_in_plan_and_record_and_the_hosts_memory(monkeypatch):
    import torch

    monkeypatch.setattr(mps.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(mps.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(mps, "cpu_model", lambda: "Apple M3")
    monkeypatch.setattr(mps, "memory_bytes", lambda: 2**34)
    (device,) = MpsKind().inventory()
    assert (device.accelerator, device.model, device.count, device.memory_bytes) == ("mps", "Apple M3 GPU", 1, 2**34)
    assert device_name(torch.device("mps")) == device.model


class Npu(DeviceKind):
    """A kind in a file of its own would be no more than this."""

    accelerator = "npu"
    environment_prefixes = ("NPU_",)

    def gpus(self):
        return (Gpu("0", "NPU-0", "Npu 1", 2**30), Gpu("1", "NPU-1", "Npu 1", 2**30))

    def visibility_variables(self, names):
        return {"NPU_VISIBLE": ",".join(names)}

    def fingerprint(self):
        return {"npu": "one"}


def test_a_module_with_a_kind_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelsweep.devices.npu", SimpleNamespace(KIND=Npu()))
    modules = kinds.iter_modules
    monkeypatch.setattr(kinds, "iter_modules", lambda path: [*modules(path), (None, "npu", False)])
    monkeypatch.setattr(kinds, "KINDS", kinds._discover())
    assert list(kinds.KINDS) == ["cpu", "cuda", "mps", "npu", "xpu", "simulated"]
    assert kinds.visibility_variables("npu", ["0"]) == {"CUDA_VISIBLE_DEVICES": "", "NPU_VISIBLE": "0"}
    assert kinds.hardware_fingerprint("npu") == {"npu": "one"}
    assert [device.count for device in kinds.inventory() if device.accelerator == "npu"] == [2]
    assert "NPU_" in kinds.environment_prefixes()


def test_the_defaults_of_a_kind_detect_nothing_and_hide_nothing():
    class Unknown(DeviceKind):
        accelerator = "npu"

    kind = Unknown()
    assert (kind.inventory(), kind.gpus(), kind.monitored()) == ((), None, ())
    assert kind.visibility_variables(["0"]) == kind.fingerprint() == {}
    assert kind.unsupported_precision("bf16-mixed") is None
    assert "has no npu backend" in kind.unsupported_precision("transformer-engine")


@pytest.mark.parametrize(
    ("version", "rocm"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", False),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.1.25424'\n", True),
        ("cuda = None\nhip = '6.0'\n", True),
        (None, False),
    ],
)
def test_a_rocm_build_of_torch_is_recognised_by_its_version_file_whatever_its_tag(tmp_path, monkeypatch, version, rocm):
    if version is not None:
        (tmp_path / "version.py").write_text(version)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(device_kind.importlib.util, "find_spec", lambda _: spec)
    assert torch_is_built_for_rocm() is rocm
    monkeypatch.setattr(device_kind.importlib.util, "find_spec", lambda _: None)
    assert torch_is_built_for_rocm() is False


def test_exactly_one_maker_of_cuda_devices_is_active():
    from accelsweep.devices import cuda, rocm

    assert [kind is None for kind in (cuda.KIND, rocm.KIND)].count(False) == 1


def test_detecting_devices_imports_neither_torch_nor_what_the_worker_must_not_need():
    """The worker runs in users' environments, which have torch and psutil but none of the rest."""
    code = (
        "import sys; from accelsweep.devices.kinds import inventory, monitored_devices; inventory(); "
        "monitored_devices(); sys.exit(', '.join({'torch', 'pydantic', 'accelsweep.config', 'accelsweep.records', "
        "'accelsweep.json_documents'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

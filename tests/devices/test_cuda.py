"""CUDA_VISIBLE_DEVICES, boards and MIG slices are read in one way for plans, leases and fingerprints."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from fake_nvml import FakeGpu

from accelsweep.devices import cuda
from accelsweep.devices.cuda import Board, CudaKind, NvmlTelemetry, NvmlUnavailable, boards, handle_of, visible_gpus
from accelsweep.devices.device_kind import Gpu

BOARDS = [Board(Gpu(str(index), uuid, "A", None)) for index, uuid in enumerate(["GPU-aa1", "GPU-ab2", "GPU-bb3"])]
SLICED = FakeGpu(
    "GPU-a", "A100", slices=(None, FakeGpu("MIG-1", "A100 MIG 1g.5gb", 5), FakeGpu("MIG-2", "A100 MIG 1g.5gb", 5))
)
WHOLE = FakeGpu("GPU-b", "A100", 40, slices=(), mig=False)


@pytest.mark.parametrize(
    ("variable", "uuids"),
    [
        (None, ["GPU-aa1", "GPU-ab2", "GPU-bb3"]),
        ("", []),
        ("-1", []),
        ("1", ["GPU-ab2"]),
        ("2,0", ["GPU-bb3", "GPU-aa1"]),
        ("0, 1", ["GPU-aa1", "GPU-ab2"]),
        ("0,7,1", ["GPU-aa1"]),
        ("0,-1,1", ["GPU-aa1"]),
        ("0,,1", ["GPU-aa1"]),
        ("GPU-b", ["GPU-bb3"]),
        ("GPU-ab2,GPU-aa", ["GPU-ab2", "GPU-aa1"]),
        ("GPU-a", []),
        ("MIG-x", []),
        ("NoDevFiles", []),
        ("0,0", ["GPU-aa1"]),
        ("1,GPU-ab2", ["GPU-ab2"]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable, uuids):
    assert [gpu.identity for gpu in visible_gpus(variable, BOARDS)] == uuids


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        (None, {"MIG-1": "MIG-1"}),
        ("MIG-2", {"MIG-2": "MIG-2"}),
        ("0", {"MIG-1": "MIG-1"}),
        ("GPU-a", {"MIG-1": "MIG-1"}),
        ("MIG-2,MIG-1", {"MIG-2": "MIG-2"}),
        ("1,MIG-2", {"MIG-2": "MIG-2"}),
        ("1", {"1": "GPU-b"}),
        ("MIG-", {}),
        ("MIG-3", {}),
    ],
)
def test_a_process_sees_one_slice_and_no_board_with_it(gpus, monkeypatch, variable, named):
    gpus(SLICED, WHOLE)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert {gpu.name: gpu.identity for gpu in CudaKind().gpus()} == named


def test_a_board_in_mig_mode_without_a_slice_is_no_device(gpus, monkeypatch):
    gpus(FakeGpu("GPU-a", slices=(None, None)), FakeGpu("GPU-b"))
    assert [gpu.identity for gpu in CudaKind().gpus()] == ["GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert CudaKind().gpus() == ()


def test_a_slice_has_its_own_model_and_memory_in_the_plan(gpus):
    gpus(SLICED, WHOLE)
    (device,) = CudaKind().inventory()
    assert (device.model, device.count, device.memory_bytes) == ("A100 MIG 1g.5gb", 1, 5)


def test_plan_and_lease_count_the_same_devices_whatever_the_variable(gpus, monkeypatch):
    gpus(SLICED, FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    for variable in ("1,2", "1,9", "GPU-c", "MIG-2", "0", "NoDevFiles", "", "1,,2"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        assert sum(device.count for device in CudaKind().inventory()) == len(CudaKind().gpus()), variable


def test_gpus_are_grouped_by_model_and_memory(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1", "A", 1), FakeGpu("GPU-2", "B", None), FakeGpu("GPU-3", "A", 1))
    inventory = [(device.model, device.count, device.memory_bytes) for device in CudaKind().inventory()]
    assert inventory == [("A", 2, 1), ("B", 1, None)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [(device.model, device.count) for device in CudaKind().inventory()] == [("B", 1)]


def test_a_cpu_build_of_torch_offers_no_cuda_devices(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1"))
    monkeypatch.undo()
    monkeypatch.setattr(cuda, "boards", lambda: pytest.fail("detected GPUs that torch cannot use"))
    monkeypatch.setattr(metadata, "version", lambda _name: "2.13.0+cpu")
    assert CudaKind().inventory() == ()


def test_the_build_of_the_torch_that_runs_use_decides_about_cuda_devices(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1"))
    assert CudaKind().inventory("2.4.0+cpu") == ()
    monkeypatch.setattr(cuda, "cpu_only_torch", lambda: True)
    assert [device.count for device in CudaKind().inventory("2.4.0+cu121")] == [1]


def test_a_torch_that_reports_no_uuid_leaves_the_gpu_to_nvml(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1"), FakeGpu("GPU-2"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(name="A"))
    assert CudaKind().telemetry_identity(torch.device("cuda", 1)) == "GPU-2"
    monkeypatch.setattr(cuda, "boards", tuple)
    assert CudaKind().telemetry_identity(torch.device("cuda", 1)) is None


def test_the_fingerprint_names_all_boards_whatever_is_visible(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1", "B"), FakeGpu("GPU-2", "A"), FakeGpu("GPU-3", "A"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert CudaKind().fingerprint() == {"device": "A, B", "driver": "570.1"}
    gpus()
    assert CudaKind().fingerprint() == {}


def test_a_machine_without_a_driver_has_no_boards(monkeypatch):
    def no_driver():
        raise NvmlUnavailable("NVML: Driver Not Loaded")

    monkeypatch.setattr(cuda, "nvml", no_driver)
    assert boards() == ()
    assert CudaKind().fingerprint() == {}


@pytest.mark.parametrize("given", ["GPU-b", "b", "MIG-2", "2"])
def test_a_board_or_slice_is_found_by_the_uuid_that_torch_gives_it(gpus, given):
    library = gpus(SLICED, WHOLE)
    assert handle_of(library, given).uuid.endswith(given[-1])
    with pytest.raises(NvmlUnavailable, match="Not Found"):
        handle_of(library, "3")


def test_without_the_nvml_package_there_is_a_reason_and_no_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match="the package nvidia-ml-py cannot be imported here"):
        NvmlTelemetry().state("GPU-1")
    assert CudaKind().gpus() == ()

"""CUDA_VISIBLE_DEVICES, boards and slices: one reading for plans, leases and fingerprints."""

from __future__ import annotations

from importlib import metadata

import pytest
from fake_nvml import FakeGpu

from accelsweep.devices import cuda
from accelsweep.devices.backend import Gpu
from accelsweep.devices.cuda import Board, CudaKind, NoNvml, boards, handle_of, visible, visible_gpus

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
    assert [gpu.identity for gpu in visible(variable, BOARDS)] == uuids


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
def test_a_process_sees_one_slice_and_no_board_beside_it(gpus, monkeypatch, variable, named):
    gpus(SLICED, WHOLE)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert CudaKind().named() == named


def test_a_board_in_mig_mode_without_a_slice_is_no_device(gpus, monkeypatch):
    gpus(FakeGpu("GPU-a", slices=(None, None)), FakeGpu("GPU-b"))
    assert [gpu.identity for gpu in visible_gpus()] == ["GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert visible_gpus() == ()


def test_a_slice_has_its_own_name_and_memory_in_the_plan(gpus):
    gpus(SLICED, WHOLE)
    (device,) = CudaKind().inventory()
    assert (device.model, device.count, device.memory_bytes) == ("A100 MIG 1g.5gb", 1, 5)


def test_plan_and_lease_count_the_same_devices_whatever_is_granted(gpus, monkeypatch):
    """Each read the variable in its own way: a scheduler's `0,9` was one device here and two there."""
    gpus(SLICED, FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    for variable in ("1,2", "1,9", "GPU-c", "MIG-2", "0", "NoDevFiles", "", "1,,2"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        assert sum(device.count for device in CudaKind().inventory()) == len(CudaKind().named()), variable


def test_gpus_are_grouped_by_model_and_memory(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1", "A", 1), FakeGpu("GPU-2", "B", None), FakeGpu("GPU-3", "A", 1))
    found = [(device.model, device.count, device.memory_bytes) for device in CudaKind().inventory()]
    assert found == [("A", 2, 1), ("B", 1, None)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [(device.model, device.count) for device in CudaKind().inventory()] == [("B", 1)]


def test_a_cpu_build_of_torch_offers_no_cuda_devices(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1"))
    monkeypatch.undo()
    monkeypatch.setattr(cuda, "boards", lambda: pytest.fail("asked for GPUs that torch cannot use"))
    monkeypatch.setattr(metadata, "version", lambda _name: "2.13.0+cpu")
    assert CudaKind().inventory() == ()


def test_the_fingerprint_names_all_boards_whatever_is_visible(gpus, monkeypatch):
    gpus(FakeGpu("GPU-1", "B"), FakeGpu("GPU-2", "A"), FakeGpu("GPU-3", "A"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert CudaKind().hardware() == {"device": "A, B", "driver": "570.1"}
    gpus()
    assert CudaKind().hardware() == {}


def test_a_machine_without_a_driver_has_no_boards(monkeypatch):
    def absent():
        raise NoNvml("NVML: Driver Not Loaded")

    monkeypatch.setattr(cuda, "nvml", absent)
    assert boards() == ()
    assert CudaKind().hardware() == {}


@pytest.mark.parametrize("given", ["GPU-b", "b", "MIG-2", "2"])
def test_a_device_is_found_by_the_uuid_that_torch_gives_board_or_slice(gpus, monkeypatch, given):
    library = gpus(SLICED, WHOLE)
    monkeypatch.setattr(cuda.pynvml, "nvmlDeviceGetHandleByUUID", library.nvmlDeviceGetHandleByUUID)
    assert handle_of(given).uuid.endswith(given[-1])
    with pytest.raises(NoNvml, match="Not Found"):
        handle_of("3")

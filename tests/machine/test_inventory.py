"""The probe sees what this process may use, and asks neither torch nor the GPU."""

from importlib import metadata

import pytest

from accelsweep.machine import inventory
from accelsweep.machine.inventory import Processor, apple_devices, cgroup_cpus, nvidia_devices, probe, visible_indices

UUIDS = ["GPU-aa1", "GPU-ab2", "GPU-bb3"]


@pytest.mark.parametrize(
    ("variable", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0, 1", [0, 1]),
        ("0,7,1", [0]),
        ("0,-1,1", [0]),
        ("GPU-b", [2]),
        ("GPU-ab2,GPU-aa", [1, 0]),
        ("GPU-a", []),
        ("MIG-x", []),
        ("0,0", [0]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable, indices):
    assert visible_indices(variable, UUIDS) == indices


def test_gpus_are_grouped_by_model(monkeypatch):
    gpus = [inventory._Gpu(uuid, model, 2**30) for uuid, model in zip(UUIDS, ["A", "B", "A"], strict=True)]
    monkeypatch.setattr(inventory, "_nvml_gpus", lambda: gpus)
    monkeypatch.setattr(inventory, "cpu_only_torch", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [(device.model, device.count) for device in nvidia_devices()] == [("A", 2), ("B", 1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [(device.model, device.count) for device in nvidia_devices()] == [("B", 1)]


def test_a_cpu_build_of_torch_has_no_cuda_devices(monkeypatch):
    monkeypatch.setattr(inventory, "_nvml_gpus", lambda: pytest.fail("asked for GPUs that torch cannot use"))
    monkeypatch.setattr(metadata, "version", lambda _name: "2.13.0+cpu")
    assert nvidia_devices() == ()


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_containers_cpu_quota_is_read_in_both_versions(tmp_path, files, cpus):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cgroup_cpus(tmp_path) == cpus


def test_a_quota_below_the_affinity_bounds_the_usable_cores(monkeypatch):
    monkeypatch.setattr(inventory.os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    for quota, usable in ((None, 4), (2.5, 2), (0.5, 1), (16.0, 4)):
        monkeypatch.setattr(inventory, "cgroup_cpus", lambda _root, quota=quota: quota)
        assert inventory.processor().usable == usable


def test_an_apple_gpu_shares_name_and_memory_with_its_processor():
    cpu = Processor("Apple M3", 8, 8, 8, 2**34)
    (device,) = apple_devices(cpu, "Darwin", "arm64")
    assert (device.accelerator, device.model, device.count, device.memory_bytes) == ("mps", "Apple M3", 1, 2**34)
    assert apple_devices(cpu, "Darwin", "x86_64") == apple_devices(cpu, "Linux", "aarch64") == ()


def test_the_cpu_comes_first_and_has_a_name_cores_and_memory():
    cpu = probe()[0]
    assert cpu.accelerator == "cpu"
    assert cpu.model
    assert cpu.count >= 1
    assert cpu.memory_bytes > 2**20

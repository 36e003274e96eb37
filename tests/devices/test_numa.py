"""NUMA nodes: their cores, the node of a GPU, and binding a process to one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.devices import numa
from accelsweep.errors import Unsupported


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two nodes of four cores, a third one of memory alone, and two GPUs; this process may use cores 2 to 7."""
    for node, cores in ((0, "0-1,4-5\n"), (1, "2-3,6-7\n"), (2, "\n")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores)
    for address, node, uuid in (("0000:17:00.0", 1, "GPU-1d5"), ("0000:18:00.0", -1, "GPU-1d5b")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(f"{node}\n")
        (tmp_path / "nvidia" / address).mkdir(parents=True)
        (tmp_path / "nvidia" / address / "information").write_text(f"Model:   H100\nGPU UUID: \t {uuid}\nIRQ: 5\n")
    monkeypatch.setattr(numa, "NODES", tmp_path)
    monkeypatch.setattr(numa, "PCI_DEVICES", tmp_path)
    monkeypatch.setattr(numa, "NVIDIA_GPUS", tmp_path / "nvidia")
    monkeypatch.setattr(numa, "allowed_cores", lambda: set(range(2, 8)))
    return tmp_path


@pytest.mark.usefixtures("machine")
def test_nodes_have_the_cores_that_this_process_may_use() -> None:
    assert numa.nodes() == {0: {4, 5}, 1: {2, 3, 6, 7}}


@pytest.mark.usefixtures("machine")
def test_a_gpu_is_found_by_its_uuid_or_its_address() -> None:
    assert numa.node_of_gpu("GPU-1d5") == 1
    assert numa.node_of_gpu("0000:17:00.0") == 1
    assert numa.node_of_gpu("GPU-1d5b") is None, "the system does not know its node"
    assert numa.node_of_gpu("GPU-unknown") is None


@pytest.mark.usefixtures("machine")
def test_a_node_without_cores_for_this_process_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"numa=2: the NUMA nodes with cores for this process are: 0, 1"):
        numa.bind(2)


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has NUMA nodes")
def test_a_process_is_bound_to_the_cores_and_the_memory_of_a_node() -> None:
    node = min(numa.nodes())
    code = f"""
import os
from accelsweep.devices import numa
numa.bind({node})
print(sorted(os.sched_getaffinity(0)))
print(open("/proc/self/numa_maps").readline())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "memory cannot be bound" in done.stderr:
        pytest.skip("this container forbids it")
    cores, maps = done.stdout.splitlines()[:2]
    assert cores == str(sorted(numa.nodes()[node] & os.sched_getaffinity(0)))
    assert f"bind:{node}" in maps

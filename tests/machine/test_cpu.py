"""The processor: one name, and the cores that affinity and control groups leave, whatever their version."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil
import pytest

from accelsweep.devices import cpu, linux
from accelsweep.devices.cpu import CpuKind, cpu_model, host_facts, memory_bytes, model_in
from accelsweep.devices.linux import cpu_quota, usable_cores
from accelsweep.measure.machine_state import fingerprint

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("4:memory:/a\n1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        (
            "3:cpu,cpuacct:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("0::/\n", {}, None),
        ("", {"cpu.max": "100000 100000"}, None),
    ],
)
def test_a_quota_is_read_in_both_versions(groups, membership, files, cores):
    groups(membership, files)
    assert cpu_quota() == cores


def test_a_quota_of_the_group_itself_is_found_below_the_mount(groups):
    """Slurm and systemd put their limits on groups within groups; the top has no file of limits at all."""
    groups("0::/job.slice/step_0\n", {"job.slice/step_0/cpu.max": "300000 100000"})
    assert cpu_quota() == 3.0


@pytest.mark.parametrize(
    ("outer", "inner", "cores"), [("200000", "max", 2.0), ("200000", "500000", 2.0), ("max", "100000", 1.0)]
)
def test_of_nested_groups_the_smallest_quota_counts(groups, outer, inner, cores):
    groups("0::/pod/box\n", {"pod/cpu.max": f"{outer} 100000", "pod/box/cpu.max": f"{inner} 100000"})
    assert cpu_quota() == cores


def test_nested_groups_of_version_1_are_read_too(groups):
    files = {"cpu/pod/cpu.cfs_quota_us": "400000", "cpu/pod/cpu.cfs_period_us": "100000"}
    groups("2:cpuset:/\n1:cpu:/pod/box\n0::/\n", files)
    assert cpu_quota() == 4.0


def test_in_a_container_that_names_the_hosts_path_the_mount_counts(groups):
    """Without a namespace of its own the container's group is the mount, and the path is one that it does not have."""
    files = {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}
    groups("1:cpu:/docker/4f2a\n", files)
    assert cpu_quota() == 2.0


def test_a_group_outside_of_what_is_mounted_falls_back_to_the_mount(groups, tmp_path):
    groups("0::/../other\n", {"cpu.max": "200000 100000", "../other/cpu.max": "100000 100000"})
    assert cpu_quota() == 2.0


def test_a_quota_and_the_affinity_bound_the_usable_cores_together(groups, affinity):
    affinity(4)
    for quota, usable in (("max", 4), ("250000", 2), ("50000", 1), ("1600000", 4)):
        groups("0::/\n", {"cpu.max": f"{quota} 100000"})
        assert usable_cores() == usable


def test_in_a_container_of_two_of_64_cores_plan_and_record_say_two(groups, affinity):
    affinity(64)
    groups("1:cpu:/box\n", {"cpu/box/cpu.cfs_quota_us": "200000", "cpu/box/cpu.cfs_period_us": "100000"})
    (planned,) = CpuKind().inventory()
    facts = host_facts()
    assert planned.count == facts["cores_usable"] == facts["cgroup_cpu_quota"] == 2
    assert len(linux.allowed_cores()) == 64


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/box\n", "box/memory.max"),
        ("4:memory:/box\n", "memory/box/memory.limit_in_bytes"),
        ("4:memory:/docker/4f2a\n", "memory/memory.limit_in_bytes"),
    ],
)
def test_in_a_container_plan_and_record_state_the_memory_that_it_grants(groups, membership, file):
    """The fingerprint has no memory, so that a record of before stands whatever was granted then."""
    groups(membership, {})
    whole, before = memory_bytes(), fingerprint({}, "cpu")
    assert whole == psutil.virtual_memory().total
    groups(membership, {file: 8 * 2**20})
    (planned,) = CpuKind().inventory()
    assert planned.memory_bytes == host_facts()["memory_bytes"] == 8 * 2**20
    assert fingerprint({}, "cpu") == before


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", 2**59])
def test_a_group_without_a_limit_or_with_more_than_the_machine_bounds_no_memory(groups, limit):
    groups("0::/\n", {"memory.max": limit})
    assert memory_bytes() == psutil.virtual_memory().total


def test_of_nested_groups_the_smallest_limit_of_memory_counts(groups):
    groups("0::/pod/box\n", {"pod/memory.max": 5 * 2**20, "pod/box/memory.max": 9 * 2**20})
    assert memory_bytes() == 5 * 2**20


def test_a_machine_has_an_identity_that_tells_nothing_of_the_systems_own(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "MACHINE_ID", tmp_path / "machine-id")
    assert host_facts()["machine"] is None
    found = []
    for own in ("3d1219c7c4c5404aaa1f6d2a48adfda4", "7d1219c7c4c5404aaa1f6d2a48adfda4", ""):
        (tmp_path / "machine-id").write_text(f"{own}\n")
        found.append(host_facts()["machine"])
        assert found[-1] == host_facts()["machine"]
    first, second, empty = found
    assert empty is None
    assert first != second
    assert len(first) == 16
    assert first not in "3d1219c7c4c5404aaa1f6d2a48adfda4"


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (
            "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: other\n",
            "AMD EPYC 7B13",
        ),
        (
            "processor\t: 0\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n",
            "Raspberry Pi 4 Model B Rev 1.4",
        ),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", None),
        ("model name\t:\n", None),
    ],
)
def test_a_processor_is_called_what_it_was_called_in_older_records(tmp_path, lines, name):
    (tmp_path / "cpuinfo").write_text(lines)
    assert model_in(tmp_path / "cpuinfo") == (name or platform.processor() or platform.machine())


def test_plan_and_record_have_one_name_for_the_processor():
    (planned,) = CpuKind().inventory()
    assert planned.model == cpu_model() == host_facts()["cpu_model"] == fingerprint({}, "cpu").hardware["host"]
    assert planned.memory_bytes == host_facts()["memory_bytes"] > 2**20


def test_where_there_are_no_groups_nothing_is_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(linux, "MEMBERSHIP", tmp_path / "none")
    assert cpu_quota() is None


def test_only_the_machine_asks_the_system_for_cores_groups_and_the_processors_name():
    asked = ("cpu_count(", "sched_getaffinity(", "/proc/cpuinfo", "/proc/self/cgroup", "virtual_memory(")
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    elsewhere = [file for file in files if any(each in file.read_text() for each in asked)]
    assert {file.relative_to(ROOT).parts[:3] for file in elsewhere} == {("src", "accelsweep", "devices")}

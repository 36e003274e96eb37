"""Control groups of either version, also inside containers; OOM kills and resource limits."""

from __future__ import annotations

import resource
import sys

import pytest

from accelsweep.devices import linux
from accelsweep.devices.linux import cgroup_free_memory, cpu_quota, insufficient_limits, oom_kills, usable_cores

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="control groups and /proc are Linux's")

GIB = 2**30


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
def test_a_cpu_quota_is_read_in_both_versions(groups, membership, files, cores):
    groups(membership, files)
    assert cpu_quota() == cores


def test_a_quota_on_a_group_below_the_mount_is_read(groups):
    """Slurm and systemd limit groups within groups; the top has no file of limits at all."""
    groups("0::/job.slice/step_0\n", {"job.slice/step_0/cpu.max": "300000 100000"})
    assert cpu_quota() == 3.0


@pytest.mark.parametrize(
    ("outer", "inner", "cores"), [("200000", "max", 2.0), ("200000", "500000", 2.0), ("max", "100000", 1.0)]
)
def test_the_tightest_quota_of_nested_groups_counts(groups, outer, inner, cores):
    groups("0::/pod/box\n", {"pod/cpu.max": f"{outer} 100000", "pod/box/cpu.max": f"{inner} 100000"})
    assert cpu_quota() == cores


def test_nested_groups_of_version_1_are_read(groups):
    files = {"cpu/pod/cpu.cfs_quota_us": "400000", "cpu/pod/cpu.cfs_period_us": "100000"}
    groups("2:cpuset:/\n1:cpu:/pod/box\n0::/\n", files)
    assert cpu_quota() == 4.0


def test_in_a_container_whose_path_is_the_hosts_the_mount_counts(groups):
    """Without a cgroup namespace the container's group is the mount, and its path does not exist inside."""
    files = {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}
    groups("1:cpu:/docker/4f2a\n", files)
    assert cpu_quota() == 2.0


def test_a_group_outside_of_the_mount_falls_back_to_the_mount(groups):
    groups("0::/../other\n", {"cpu.max": "200000 100000", "../other/cpu.max": "100000 100000"})
    assert cpu_quota() == 2.0


def test_without_control_groups_there_is_no_quota(monkeypatch, tmp_path):
    monkeypatch.setattr(linux, "CGROUP_MEMBERSHIP", tmp_path / "none")
    assert cpu_quota() is None


def test_quota_and_affinity_both_limit_the_usable_cores(groups, affinity):
    affinity(4)
    for quota, usable in (("max", 4), ("250000", 2), ("50000", 1), ("1600000", 4)):
        groups("0::/\n", {"cpu.max": f"{quota} 100000"})
        assert usable_cores() == usable


@pytest.mark.parametrize(
    ("membership", "files", "free"),
    [
        (
            "0::/a/b",
            {"a/memory.max": 900, "a/memory.current": 500, "a/memory.stat": "anon 400\ninactive_file 100"},
            500,
        ),
        ("0::/a", {"a/memory.max": "max", "a/memory.current": 500, "a/memory.stat": "anon 400"}, None),
        (
            "4:memory:/j",
            {
                "memory/j/memory.limit_in_bytes": 800,
                "memory/j/memory.usage_in_bytes": 300,
                "memory/j/memory.stat": "cache 9\ntotal_inactive_file 50",
                "memory/memory.limit_in_bytes": 9223372036854771712,
            },
            550,
        ),
        ("4:memory:/j", {}, None),
    ],
)
def test_reclaimable_file_pages_count_as_free_memory_of_a_control_group(groups, membership, files, free):
    groups(membership, files)
    assert cgroup_free_memory() == free


@needs_linux
@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        ("0::/box\n", "box/memory.events", "oom 5\noom_kill 3\noom_group_kill 0"),
        ("0::/kubepods/pod1\n", "memory.events", "oom_kill 3"),
        ("0::/../other\n", "memory.events", "oom_kill 3"),
        ("4:memory:/box\n", "memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3"),
        ("4:memory:/docker/4f2a\n", "memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3"),
    ],
)
def test_oom_kills_in_our_group_are_counted_even_where_its_path_is_the_hosts(groups, membership, file, text):
    groups(membership, {})
    before = oom_kills()
    groups(membership, {file: text})
    assert oom_kills() - before == 3


@needs_linux
def test_an_oom_kill_counts_once_though_version_2_counts_it_in_each_enclosing_group(groups):
    groups("0::/pod/box\n", {})
    before = oom_kills()
    groups("0::/pod/box\n", {"pod/memory.events": "oom_kill 2", "pod/box/memory.events": "oom_kill 2"})
    assert oom_kills() - before == 2


@pytest.mark.parametrize(
    ("limit", "soft", "hard", "message"),
    [
        (
            resource.RLIMIT_AS,
            2 * GIB,
            -1,
            "to 2097152 KiB (ulimit -v), but a sweep needs 134217728: ulimit -Sv unlimited",
        ),
        (resource.RLIMIT_AS, 64 * GIB, 64 * GIB, "start the sweep in a shell with a higher hard limit (ulimit -Hv)"),
        (resource.RLIMIT_NOFILE, 100, 4096, "to 100 (ulimit -n), but a sweep needs 256: ulimit -Sn 4096"),
        (resource.RLIMIT_FSIZE, GIB // 1024, -1, "the size of a file to 1024 KiB (ulimit -f)"),
    ],
)
def test_a_resource_limit_that_is_too_low_is_named_with_the_command_that_raises_it(
    monkeypatch, limit, soft, hard, message
):
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (soft, hard) if asked == limit else (-1, -1))
    (fault,) = insufficient_limits()
    assert message in fault


def test_high_resource_limits_are_no_fault(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200 * GIB, 200 * GIB))
    assert list(insufficient_limits()) == []

"""Evidence of kills for lack of memory, in groups of either version and inside containers."""

from __future__ import annotations

import resource
import sys

import pytest

from accelsweep.devices.linux import narrow_limits, oom_kills

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")


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
def test_kills_in_our_own_group_are_counted_also_where_its_path_is_the_hosts(groups, membership, file, text):
    groups(membership, {})
    before = oom_kills()
    groups(membership, {file: text})
    assert oom_kills() - before == 3


def test_a_kill_is_counted_once_though_version_2_counts_it_in_each_group_around_it(groups):
    groups("0::/pod/box\n", {})
    before = oom_kills()
    groups("0::/pod/box\n", {"pod/memory.events": "oom_kill 2", "pod/box/memory.events": "oom_kill 2"})
    assert oom_kills() - before == 2


GIB = 2**30


@pytest.mark.parametrize(
    ("limit", "soft", "hard", "words"),
    [
        (
            resource.RLIMIT_AS,
            2 * GIB,
            -1,
            "to 2097152 KiB (ulimit -v), and a sweep needs 134217728: ulimit -Sv unlimited",
        ),
        (resource.RLIMIT_AS, 64 * GIB, 64 * GIB, "start it in a shell with a higher hard limit (ulimit -Hv)"),
        (resource.RLIMIT_NOFILE, 100, 4096, "to 100 (ulimit -n), and a sweep needs 256: ulimit -Sn 4096"),
        (resource.RLIMIT_FSIZE, GIB // 1024, -1, "the size of a file to 1024 KiB (ulimit -f)"),
    ],
)
def test_a_limit_that_is_too_narrow_is_told_with_the_command_that_lifts_it(monkeypatch, limit, soft, hard, words):
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (soft, hard) if asked == limit else (-1, -1))
    (told,) = narrow_limits()
    assert words in told


def test_wide_limits_are_no_obstacle(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200 * GIB, 200 * GIB))
    assert list(narrow_limits()) == []

"""Evidence of kills for lack of memory, in groups of either version and inside containers."""

from __future__ import annotations

import sys

import pytest

from accelsweep.machine.linux import oom_kills

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

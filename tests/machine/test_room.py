"""The memory that is left to a rank on its host, and the limit that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from accelsweep.devices.linux import memory_room
from accelsweep.devices.memory_limits import free_memory, room_of_a_rank

MIB = 2**20
SHOW = "from accelsweep.devices.memory_limits import *; room = room_of_a_rank(2); print(room.bytes, room.limit)"
LIMITED = "import resource; resource.setrlimit(resource.{name}, ({bytes}, {bytes}));"

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")


def shown(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size, _, limit = done.stdout.strip().partition(" ")
    return int(size), limit


@pytest.fixture
def no_group(groups):
    groups("0::/", {})


@pytest.mark.usefixtures("no_group")
def test_ranks_share_what_the_machine_has_left():
    free = psutil.virtual_memory().available
    one, four = room_of_a_rank(1), room_of_a_rank(4)
    assert one.limit == four.limit == "machine memory"
    assert one.bytes == pytest.approx(free, rel=0.2)
    assert four.bytes == pytest.approx(one.bytes / 4, rel=0.2)


def test_a_control_group_with_less_than_the_machine_is_what_is_free(groups):
    groups("0::/a", {"a/memory.max": 5 * MIB, "a/memory.current": 2 * MIB, "a/memory.stat": "inactive_file 0"})
    assert free_memory() == (3 * MIB, "control group")
    assert room_of_a_rank(3) == (MIB, "control group")


def test_a_limit_of_the_config_is_each_ranks_own():
    assert room_of_a_rank(2, 3 * MIB) == (3 * MIB, "measure.rank_memory_bytes")


@pytest.mark.parametrize(
    ("membership", "files", "room"),
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
def test_a_control_group_grants_its_limit_less_its_use_but_for_pages_of_files_that_nobody_needs(
    groups, membership, files, room
):
    groups(membership, files)
    assert memory_room() == room


@needs_linux
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_is_not_shared_and_what_it_has_counts(name):
    limit = 600 * MIB
    size, kind = shown(LIMITED.format(name=name, bytes=limit) + SHOW)
    assert kind == name
    assert 300 * MIB < size < limit


@needs_linux
def test_a_process_gets_as_much_data_as_it_was_allowed():
    code = (
        "from accelsweep.devices.memory_limits import *; begin_peak(); assert take_no_more_than(64 * 2**20)\n"
        "held = bytearray(60 * 2**20)\n"
        "try: held = [held, bytearray(8 * 2**20)]\n"
        "except MemoryError: print(1, 'no more')"
    )
    assert shown(code) == (1, "no more")


@needs_linux
def test_the_peak_is_that_since_it_began():
    code = (
        "from accelsweep.devices.memory_limits import *; held = bytearray(b'1') * (80 * 2**20); del held\n"
        "before = begin_peak(); held = bytearray(b'1') * (32 * 2**20); del held; print(own_bytes('VmHWM') - before, '')"
    )
    assert shown(code)[0] == pytest.approx(32 * MIB, rel=0.1)


@pytest.fixture
def real_group():
    """A control group of the kernel's own, below that of this process, where root may make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            folder, limit = Path(f"/sys/fs/cgroup/memory{path}/accelsweep-test-{os.getpid()}"), "memory.limit_in_bytes"
            break
        if not controllers:
            folder, limit = Path(f"/sys/fs/cgroup{path}/accelsweep-test-{os.getpid()}"), "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(96 * MIB))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


@needs_linux
def test_a_real_control_group_is_found_and_named(real_group):
    code = f"import os, pathlib; pathlib.Path('{real_group}/cgroup.procs').write_text(str(os.getpid()));" + SHOW
    size, kind = shown(code)
    assert kind == "control group"
    assert 20 * MIB < size <= 48 * MIB, "half of what is left: two ranks share it"

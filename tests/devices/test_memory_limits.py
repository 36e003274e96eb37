"""What a rank may still take of its host's memory, and which limit says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from accelsweep.devices.memory_limits import FreeMemory, free_memory, free_memory_per_rank

MIB = 2**20
SHOW = "from accelsweep.devices.memory_limits import *; free = free_memory_per_rank(2); print(free.bytes, free.limit)"
LIMITED = "import resource; resource.setrlimit(resource.{name}, ({bytes}, {bytes}));"

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")


def printed_by(code: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size, _, limit = done.stdout.strip().partition(" ")
    return int(size), limit


@pytest.fixture
def no_group(groups):
    groups("0::/", {})


@pytest.mark.usefixtures("no_group")
def test_ranks_share_the_available_memory_of_the_machine():
    available = psutil.virtual_memory().available
    one, four = free_memory_per_rank(1), free_memory_per_rank(4)
    assert one.limit == four.limit == "machine memory"
    assert one.bytes == pytest.approx(available, rel=0.2)
    assert four.bytes == pytest.approx(one.bytes / 4, rel=0.2)


def test_a_control_group_with_less_than_the_machine_is_the_limit(groups):
    groups("0::/a", {"a/memory.max": 5 * MIB, "a/memory.current": 2 * MIB, "a/memory.stat": "inactive_file 0"})
    assert free_memory() == (3 * MIB, "control group")
    assert free_memory_per_rank(3) == (MIB, "control group")


def test_a_limit_in_the_config_is_per_rank():
    assert free_memory_per_rank(2, 3 * MIB) == (3 * MIB, "measure.rank_memory_bytes")


@pytest.mark.parametrize(
    ("configured", "capped"), [(None, "device memory"), (200, "device memory"), (50, "measure.rank_memory_bytes")]
)
def test_the_tighter_of_device_and_config_is_the_limit(configured, capped):
    assert FreeMemory(100, "device memory").capped(configured) == (configured if configured == 50 else 100, capped)


@needs_linux
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_resource_limit_is_not_shared_and_current_usage_counts(name):
    limit = 600 * MIB
    size, kind = printed_by(LIMITED.format(name=name, bytes=limit) + SHOW)
    assert kind == name
    assert 300 * MIB < size < limit


@needs_linux
def test_a_process_can_allocate_as_much_as_it_was_allowed_and_no_more():
    code = (
        "from accelsweep.devices.memory_limits import *; reset_peak_rss(); limit_data_growth(64 * 2**20)\n"
        "held = bytearray(60 * 2**20)\n"
        "try: held = [held, bytearray(8 * 2**20)]\n"
        "except MemoryError: print(1, 'no more')"
    )
    assert printed_by(code) == (1, "no more")


@needs_linux
def test_the_peak_counts_from_its_reset():
    code = (
        "from accelsweep.devices.memory_limits import *; held = bytearray(b'1') * (80 * 2**20); del held\n"
        "before = reset_peak_rss(); held = bytearray(b'1') * (32 * 2**20); del held\n"
        "print(process_bytes('VmHWM') - before, '')"
    )
    assert printed_by(code)[0] == pytest.approx(32 * MIB, rel=0.1)


@pytest.fixture
def real_group():
    """A real control group below that of this process, where root may create one."""
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
        pytest.skip(f"no control group can be created here: {error}")
    yield folder
    folder.rmdir()


@needs_linux
def test_a_real_control_group_is_the_limit(real_group):
    code = f"import os, pathlib; pathlib.Path('{real_group}/cgroup.procs').write_text(str(os.getpid()));" + SHOW
    size, kind = printed_by(code)
    assert kind == "control group"
    assert 20 * MIB < size <= 48 * MIB, "half of what is left: two ranks share it"

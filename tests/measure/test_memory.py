"""The memory of a run, and memory that grows throughout the window."""

from __future__ import annotations

import mmap
import random
import sys

import pytest
import torch
from fake_clock import FakeClock, FakeGroup

from accelsweep.devices.clock import ClockMarks
from accelsweep.measure.memory import (
    MIN_BYTES,
    OWN_BYTES_PER_STEP,
    MemoryWatch,
    RankMemory,
    growth,
    memory_metrics,
    memory_readers,
    part_ends,
    rank_memory,
)
from accelsweep.measure.timed_window import Window, WindowRules
from accelsweep.metrics import MEMORY_METRICS


def test_device_memory_is_the_fullest_devices_and_host_memory_the_sum():
    metrics = memory_metrics([RankMemory(10, 20, 30, 5, {}), RankMemory(12, 19, 31, 6, {})])
    assert metrics["peak_memory_allocated_bytes"].value == 12
    assert metrics["peak_memory_reserved_bytes"].value == 20
    assert metrics["device_memory_used_bytes"].value == 31
    assert metrics["host_pss_bytes"].value == 11
    assert metrics["host_pss_bytes"].scope == "all ranks without loader workers, when the window closed"


def test_all_memory_metrics_are_read_and_no_others():
    of_a_command = {"process_peak_bytes"}
    assert {*memory_metrics([RankMemory(10, 20, 30, 5, {})])} == {*MEMORY_METRICS} - of_a_command


def test_a_cpu_has_a_reason_instead_of_device_memory():
    metrics = memory_metrics([rank_memory(torch.device("cpu"))])
    assert metrics["peak_memory_allocated_bytes"].value is None
    assert "CPU" in metrics["peak_memory_allocated_bytes"].reason


@pytest.mark.skipif(sys.platform != "linux", reason="proportional set size is Linux's")
def test_host_memory_sees_what_was_allocated():
    before = rank_memory(torch.device("cpu")).pss
    block = bytearray(b"x" * 50_000_000)
    after = rank_memory(torch.device("cpu")).pss
    assert 45_000_000 < after - before < 80_000_000
    del block


MIB = 2**20
RUNS = 500
ALLOWED = RUNS // 100


class Host:
    """A device without a queue, as a CPU is."""

    def synchronise(self):
        pass

    def marks(self, clock):
        return ClockMarks(clock)


def watched(held, *, warmup=4, steps=120, multiple_of=1):
    """Drive a window over a rank that holds `held(step)` bytes after each step; return its watch and its looks."""
    clock, log, done, looks = FakeClock(), [], 0, []

    def read():
        looks.append(done)
        return held(done)

    watch = MemoryWatch({"the host": read})
    rules = WindowRules(warmup, min_steps=steps, min_seconds=0.0, max_steps=steps, multiple_of=multiple_of)
    window = Window(rules, device=Host(), group=FakeGroup(log), clock=clock, memory=watch)
    window.begin()
    while True:
        clock.advance(0.1)
        done += 1
        if window.step_done(32):
            return watch.growth(), looks


def test_growth_of_a_megabyte_per_step_is_reported_with_bytes_and_steps():
    grown, _ = watched(lambda step: 200 * MIB + step * MIB)
    assert grown == {"the host": (120 * MIB, 120)}


def test_memory_is_read_at_the_ends_of_six_parts_and_never_in_the_warm_up():
    """Seven readings of a window, however long: what a reading costs cannot add up."""
    for steps in (120, 12_000):
        _, looks = watched(lambda step: MIB, steps=steps)
        assert looks == [4 + steps * part // 6 for part in range(7)]


def test_parts_have_whole_optimiser_steps():
    """Gradients come with the first of 4 batches and go with the last, 64 MiB of them: nothing grows."""
    grown, looks = watched(lambda step: (100 + 64 * (step % 4 > 0)) * MIB + step * 300_000, steps=100, multiple_of=4)
    assert {look % 4 for look in looks} == {0}
    assert grown == {"the host": (30_000_000, 100)}


def test_a_window_of_fewer_than_six_optimiser_steps_is_not_judged():
    assert part_ends(20, 4) == []
    assert watched(lambda step: step * 100 * MIB, steps=5)[0] == {}
    assert watched(lambda step: step * 100 * MIB, steps=6)[0] == {"the host": (600 * MIB, 6)}


def rising(before, grown, steps):
    return [(step, before + round(grown * step / steps)) for step in (0, *part_ends(steps, 1), steps)]


@pytest.mark.parametrize(
    ("before", "least", "steps"),
    [(0, MIN_BYTES, 100), (10 * 2**30, 10 * 2**30 // 100 + 1, 100), (0, 50_000 * OWN_BYTES_PER_STEP, 50_000)],
)
def test_small_growth_is_ignored(before, least, steps):
    """16 MiB at least, 1 % of what was held, and more than the notes that the window keeps of each step."""
    assert growth(rising(before, least, steps)) == least
    assert growth(rising(before, least - 1, steps)) is None


def readings(held, steps):
    return [(step, round(held(step))) for step in (0, *part_ends(steps, 1), steps)]


@pytest.mark.parametrize("steps", [60, 600])
def test_a_heap_that_fills_up_is_rarely_reported_as_growing(steps):
    """What is missing falls to a third every 3 to 30 steps from the first step on, and the window opens at step 20."""
    rng, alarms = random.Random(1), 0
    for _ in range(RUNS):
        size, pace, noise = rng.uniform(50, 2000) * MIB, rng.uniform(3, 30), rng.uniform(0, 4) * MIB
        held = readings(lambda step: size * (1 - 3 ** (-(step + 20) / pace)) + rng.gauss(0, noise), steps)  # noqa: B023
        alarms += growth(held) is not None
    assert alarms <= ALLOWED


@pytest.mark.parametrize("steps", [60, 600])
def test_new_peaks_of_uneven_batches_are_rarely_reported_as_growing(steps):
    """The heap is as large as the largest batch so far, of skewed sizes with a mean of 100 MiB."""
    rng, alarms = random.Random(2), 0
    for _ in range(RUNS):
        sizes = [rng.expovariate(1 / 100) * MIB for _ in range(20 + steps)]
        alarms += growth(readings(lambda step: 300 * MIB + max(sizes[: 20 + step]), steps)) is not None  # noqa: B023
    assert alarms <= ALLOWED


@pytest.mark.parametrize("spread", [1, 8, 64])
def test_a_random_walk_of_memory_is_rarely_reported_as_growing(spread):
    """A random walk, as where a collector comes now and then, and jumps of a tenth of the steps."""
    rng, alarms = random.Random(3), 0
    for _ in range(RUNS):
        levels = [1000.0 * MIB]
        for _ in range(120):
            levels.append(levels[-1] + (rng.gauss(0, spread * MIB) if rng.random() < 0.1 else 0.0))
        alarms += growth(readings(lambda step: levels[step], 120)) is not None  # noqa: B023
    assert alarms <= ALLOWED


def test_a_leak_is_found_through_the_noise_of_the_counter():
    """1 MiB a step under readings that are off by 2 MiB: found in more than 9 of 10 windows of 120 steps."""
    rng = random.Random(4)
    found = sum(
        growth(readings(lambda step: (200 + step + rng.gauss(0, 2)) * MIB, 120)) is not None for _ in range(RUNS)
    )
    assert found > 0.9 * RUNS


def test_private_memory_is_read_and_mapped_files_are_not(tmp_path):
    """32 MiB of a file in memory are no growth (Linux); 32 MiB of its own, which no heap had before, are."""
    (tmp_path / "mapped").write_bytes(bytes(32 * MIB))
    read = memory_readers(torch.device("cpu"))["the host"]
    begin = read()
    mapped = torch.from_file(str(tmp_path / "mapped"), shared=True, size=32 * MIB, dtype=torch.uint8)
    assert int(mapped.sum()) == 0
    between = read()
    own = mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own.write(b"1" * len(own))
    assert between - begin < 16 * MIB <= read() - between

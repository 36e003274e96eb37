"""Doubts that a run finds about itself. Each has its threshold here, and states a remedy.

A doubt that always fires is worthless: an idle, healthy machine stays below the thresholds.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from accelsweep.devices.linux import allowed_cores
from accelsweep.measure.stalls import RankStalls, all_idle
from accelsweep.results import Doubt
from accelsweep.run_environment import DeviceState, MachineState
from accelsweep.significant_digits import count_of

# The steadiness of a window: one change of level, tested on medians of bins.

BINS = 30

EDGE = 5
"""A level must last at least this many bins."""

CRITICAL = 5.0
"""A t that chance exceeds less than once in a thousand steady windows (simulated in the tests: 30 normal bins)."""

SMALLEST_SHIFT = 0.05
"""A smaller relative change of level is not worth a doubt."""


@dataclass(frozen=True)
class LevelShift:
    """A change of the step time's level: at which share of the window, and from what to what (s)."""

    at: float
    before_seconds: float
    after_seconds: float


def level_shift(step_seconds: Sequence[float]) -> LevelShift | None:
    """Return the level shift of a window's step times; None where it was steady, or under two steps a bin."""
    if len(step_seconds) < 2 * BINS:
        return None
    levels = _bin_medians(step_seconds)
    split = max(range(EDGE, BINS - EDGE + 1), key=lambda split: _t(levels, split))
    if _t(levels, split) < CRITICAL:
        return None
    before, after = statistics.fmean(levels[:split]), statistics.fmean(levels[split:])
    if abs(after - before) < SMALLEST_SHIFT * min(before, after):
        return None
    return LevelShift(split / BINS, before, after)


def _bin_medians(values: Sequence[float]) -> list[float]:
    edges = [round(number * len(values) / BINS) for number in range(BINS + 1)]
    return [statistics.median(values[begin:end]) for begin, end in pairwise(edges)]


def _t(levels: Sequence[float], split: int) -> float:
    left, right = levels[:split], levels[split:]
    middle_left, middle_right = statistics.fmean(left), statistics.fmean(right)
    squares = sum((value - middle_left) ** 2 for value in left) + sum((value - middle_right) ** 2 for value in right)
    spread = math.sqrt(squares / (len(levels) - 2) * (1 / len(left) + 1 / len(right)))
    difference = abs(middle_left - middle_right)
    return difference / spread if spread > 0 else (math.inf if difference > 0 else 0.0)


SHORT = 0.8
"""A window below this share of the requested seconds is short (warm-up only estimates the pace)."""

SATURATED = 0.85

FOREIGN = 0.05
"""Shares of the cores that we may run on: others count if they used more than FOREIGN and all filled SATURATED.

A quota has no effect on this. While some of these cores idle, others take no time from us.
"""

SWAPPED_BYTES = 16 * 2**20

FAULTS_PER_SECOND = 10.0
"""Pages that a rank had to read from the disk: each takes a disk's seek, so this many take a tenth of the time."""

DRIFT_CELSIUS = 15

HELD_BACK_SHARE = 0.01
"""A device that the driver held back for a larger share of the window was throttled, or at its power limit."""

CLOCK_GAP_SECONDS = 1.0
"""Clocks that are slewed to the right time drift apart by a ten-thousandth, and a clock that was set moves by more."""

POWER_CAPS = ("SwPowerCap", "power cap")
"""NVML's words for a device at its power limit: under heavy work many boards always are, and their rate is steady."""


def short_window(seen_seconds: float, asked: float) -> Doubt | None:
    """Doubt a window that lasted much less than the `asked` seconds, `measure.min_seconds`."""
    if seen_seconds >= SHORT * asked:
        return None
    return Doubt(
        code="short_window",
        message=f"the window lasted {seen_seconds:.2f} s, and {asked:g} s were asked for",
        remedy="raise measure.max_steps or measure.warmup_steps",
    )


def unsteady(step_seconds: Sequence[float]) -> Doubt | None:
    """Doubt a window whose step time changed its level."""
    shift = level_shift(step_seconds)
    if shift is None:
        return None
    return Doubt(
        code="unsteady_window",
        message=(
            f"the step time went from {shift.before_seconds * 1e3:.3g} ms to {shift.after_seconds * 1e3:.3g} ms "
            f"after {shift.at:.0%} of the window"
        ),
        remedy="raise measure.warmup_steps and measure.min_seconds, and look for other work on the machine",
    )


def stalled(ranks: Sequence[RankStalls], whole_seconds: float, without: str, what: str) -> Doubt | None:
    """Doubt `what`, which lasted `whole_seconds`, for the stalls of every rank; `without` says what is true without.

    Where all processes stood still, the cause lies outside of the run.
    """
    seconds, count = max(rank.seconds for rank in ranks), max(rank.count for rank in ranks)
    if not count:
        return None
    share = f"{seconds:.3g} s ({seconds / whole_seconds:.0%} of {what})"
    if all_idle(ranks):
        return Doubt(
            code="processes_stopped",
            message=f"all processes stood still for {share} and used no processor; without that {without}",
            remedy=(
                "measure it again; look for a suspended job, a paused container, a file system that hung (dmesg), or a "
                "loader that waits for remote data"
            ),
        )
    some = sum(rank.count > 0 for rank in ranks)
    where = "" if some == len(ranks) else f" on {some} of {len(ranks)} ranks"
    return Doubt(
        code="stall",
        message=f"{count_of(count, 'step')} took {share} longer than a usual one{where}; without that {without}",
        remedy=(
            "look for a garbage collection, a wait for storage or seldom work of the module; where it recurs, raise "
            "measure.min_seconds until the window holds many of them"
        ),
    )


def clock_gap(seconds: float, what: str = "the window") -> Doubt | None:
    """Doubt `what` whose durations do not hold `seconds` that passed on the wall clock."""
    if seconds < CLOCK_GAP_SECONDS:
        return None
    return Doubt(
        code="clock_gap",
        message=(
            f"{seconds:.3g} s passed on the wall clock within {what} that its duration does not hold: the machine "
            "slept or was paused, or its clock was set"
        ),
        remedy="measure it again, with sleep turned off and the lid open",
    )


def busy_cpu(foreign_cores: float | None, our_cores: float) -> Doubt | None:
    """Doubt a window in which other processes may have taken processor time from ours."""
    cores = len(allowed_cores())
    if foreign_cores is None or foreign_cores < FOREIGN * cores or foreign_cores + our_cores < SATURATED * cores:
        return None
    return Doubt(
        code="busy_cpu",
        message=f"other processes kept {foreign_cores:.2f} of {cores} cores busy while we used {our_cores:.2f}",
        remedy="stop other work on this machine and measure again",
    )


def swapping(swapped_bytes: float) -> Doubt | None:
    """Doubt a window in which the machine moved memory to or from disk."""
    if swapped_bytes < SWAPPED_BYTES:
        return None
    return Doubt(
        code="swap",
        message=f"the machine swapped {swapped_bytes / 2**20:.0f} MiB during the window",
        remedy="free memory, or lower batch_size",
    )


def page_faults(faults: float, seconds: float) -> Doubt | None:
    """Doubt a window of `seconds` in which a rank waited for the disk in `faults` major page faults."""
    if seconds <= 0 or faults / seconds < FAULTS_PER_SECOND:
        return None
    return Doubt(
        code="page_faults",
        message=f"a rank waited for {faults:.0f} pages from disk during the window ({faults / seconds:.0f} a second)",
        remedy="free memory, or copy memory-mapped data into memory before the window (data.placement)",
    )


def memory_grows(found: tuple[str, int, int] | None) -> Doubt | None:
    """Doubt a window in which a rank's memory grew throughout: where, by how many bytes, over how many steps."""
    if found is None:
        return None
    place, grown, steps = found
    return Doubt(
        code="memory_grows",
        message=(
            f"a rank's memory on {place} grew throughout the window, by {grown / 2**20:.0f} MiB "
            f"({grown / steps / 2**20:.2g} MiB a step)"
        ),
        remedy="keep nothing of earlier steps (store loss.item(), not loss); let a cache fill in measure.warmup_steps",
    )


def epoch_boundary(count: int) -> Doubt | None:
    """Doubt a window that restarted the training data."""
    if count == 0:
        return None
    return Doubt(
        code="epoch_boundary",
        message=f"the training data ended and was begun again {count} times inside the window",
        remedy="let the train_dataloader give an endless stream, or accept that its restart is part of the rate",
    )


def optimizer_batch(held: Sequence[Counter[int]], asked: int, usual: int | None, samples: int) -> Doubt | None:
    """Doubt a window whose optimiser steps held another number of batches than the config asks for.

    `held` has, for each optimiser, how many of its steps held how many batches, and `usual` is what nearly all of them
    held, if there is such a number. A batch has `samples` samples on all ranks together.
    """
    if usual == asked:
        return None
    wanted = f"{_batches(asked, samples)} of trainer.accumulate_grad_batches={asked}"
    if not held:
        message = f"no optimiser step ended in the window, where {wanted} were expected"
    else:
        seen = "; ".join(_shares(counted, samples) for counted in dict.fromkeys(map(_frozen, held)))
        message = f"an optimiser step held {seen}, not the {wanted}"
    return Doubt(
        code="optimizer_batch",
        message=message,
        remedy=(
            "accumulate a number of batches that divides an epoch (Lightning steps at the end of each), in trainer and "
            "not in a callback or the module; compare settings by effective.global_batch_size"
        ),
    )


def _frozen(counted: Counter[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(counted.items()))


def _shares(counted: tuple[tuple[int, int], ...], samples: int) -> str:
    if len(counted) == 1:
        return _batches(counted[0][0], samples)
    steps = sum(times for _, times in counted)
    return " or ".join(f"{_batches(batches, samples)}, {times / steps:.0%} of the steps" for batches, times in counted)


def _batches(count: int, samples: int) -> str:
    return f"{count} batch{'' if count == 1 else 'es'} ({count * samples} samples)"


def device_doubts(before: MachineState, after: MachineState) -> list[Doubt]:
    """Return the doubts from the devices' states before and after a run: throttling, heat, foreign processes."""
    pairs = zip(before.devices, after.devices, strict=False)
    found = ((*_throttled(old, new), _drift(old, new), _foreign(old, new)) for old, new in pairs)
    return [doubt for each in found for doubt in each if doubt]


def governor(name: str | None) -> Doubt | None:
    """Doubt clocks that follow the load: the governor `name` of the processor's frequency, None where there is none."""
    if name in (None, "performance"):
        return None
    return Doubt(
        code="cpu_governor",
        message=f"the processor's frequency governor is {name!r}: clock rates and step times depend on the load",
        remedy="as root: cpupower frequency-set --governor performance; otherwise trust small differences less",
    )


def _throttled(before: DeviceState, after: DeviceState) -> Iterator[Doubt]:
    """Yield `throttled` for heat and faults, and `power_capped` for a device at the limit that it always works at."""
    reasons = list(dict.fromkeys([*before.throttles, *after.throttles]))
    seen = [(reason, reason) for reason in reasons]
    seen += [(reason, f"{reason} for {share:.0%} of the time") for reason, share in _held_back(before, after)]
    hot = [words for reason, words in seen if reason not in POWER_CAPS]
    capped = [words for reason, words in seen if reason in POWER_CAPS]
    if hot:
        yield Doubt(
            code="throttled",
            message=f"{after.name} ran slower than it could: {', '.join(hot)}",
            remedy="improve cooling or look for a fault of the board, or lock lower clocks for all runs",
        )
    if capped:
        yield Doubt(
            code="power_capped",
            message=f"{after.name} worked at its power limit: {', '.join(capped)}",
            remedy="none if it always works at this limit; else raise the limit, or lock lower clocks for all runs",
        )


def _held_back(before: DeviceState, after: DeviceState) -> Iterator[tuple[str, float]]:
    """Yield the reasons for which the device was held back between the readings, and for which share of the time."""
    for reason, counted in after.held_back.items():
        begun = before.held_back.get(reason)
        if begun is None or counted is None or counted[1] <= begun[1]:
            continue
        share = (counted[0] - begun[0]) / (counted[1] - begun[1])
        if share >= HELD_BACK_SHARE:
            yield reason, min(share, 1.0)


def _drift(before: DeviceState, after: DeviceState) -> Doubt | None:
    cold, warm = before.celsius, after.celsius
    if cold is None or warm is None or abs(warm - cold) < DRIFT_CELSIUS:
        return None
    return Doubt(
        code="temperature_drift",
        message=f"{after.name} went from {cold} to {warm} degrees Celsius during the run",
        remedy="raise measure.warmup_steps so that the device is warm when the window opens",
    )


def _foreign(before: DeviceState, after: DeviceState) -> Doubt | None:
    others = sorted({*before.foreign_processes, *after.foreign_processes})
    if not others:
        return None
    return Doubt(
        code="foreign_process",
        message=f"other processes compute on {after.name}: {', '.join(map(str, others))}",
        remedy="stop them, or take a device of your own",
    )

"""Doubts that a run records about its own measurement, with their thresholds and remedies.

The thresholds are set so that no doubts arise on an idle, healthy machine: a doubt that always arises is worthless.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accelsweep.devices.linux import allowed_cores
from accelsweep.measure.stalls import RankStalls, all_idle
from accelsweep.results import Doubt
from accelsweep.run_config import Measure
from accelsweep.run_environment import DeviceState, MachineState
from accelsweep.significant_digits import count_of, significant

BINS = 30

MIN_LEVEL_BINS = 5
"""A level must last at least this many bins."""

CRITICAL_T = 5.0
"""The threshold for the t statistic of a level shift.

In the tests' simulations with 30 normal bins, fewer than one in a thousand steady windows exceed it by chance.
"""

MIN_SHIFT = 0.05
"""The smallest relative level shift that is flagged."""


@dataclass(frozen=True)
class LevelShift:
    """A lasting change in step time, in seconds, and its position as a share of the window."""

    at: float
    before_seconds: float
    after_seconds: float


def level_shift(step_seconds: Sequence[float]) -> LevelShift | None:
    """Return the level shift in a window's step times; None if they are steady or too few (fewer than two per bin).

    The bins' medians are split where the t statistic is largest, and that split is tested.
    """
    if len(step_seconds) < 2 * BINS:
        return None
    edges = [round(number * len(step_seconds) / BINS) for number in range(BINS + 1)]
    levels = [statistics.median(step_seconds[begin:end]) for begin, end in pairwise(edges)]
    split = max(range(MIN_LEVEL_BINS, BINS - MIN_LEVEL_BINS + 1), key=lambda split: _t(levels, split))
    if _t(levels, split) < CRITICAL_T:
        return None
    before, after = statistics.fmean(levels[:split]), statistics.fmean(levels[split:])
    if abs(after - before) < MIN_SHIFT * min(before, after):
        return None
    return LevelShift(split / BINS, before, after)


def _t(levels: Sequence[float], split: int) -> float:
    """Return the t statistic for the difference between the levels before and after `split`."""
    left, right = levels[:split], levels[split:]
    mean_left, mean_right = statistics.fmean(left), statistics.fmean(right)
    squares = sum((value - mean_left) ** 2 for value in left) + sum((value - mean_right) ** 2 for value in right)
    error = math.sqrt(squares / (len(levels) - 2) * (1 / len(left) + 1 / len(right)))
    difference = abs(mean_left - mean_right)
    return difference / error if error > 0 else (math.inf if difference > 0 else 0.0)


SHORT = 0.8
"""A window is flagged as short below this share of the requested time.

The share is below 1 because the warm-up yields only an estimate of the step time.
"""

SATURATED = 0.85

FOREIGN = 0.05
"""Shares of the available cores: foreign load of at least FOREIGN is flagged if the total load is at least SATURATED.

While some of these cores are idle, other processes take no CPU time from us, even under a quota.
"""

SWAPPED_BYTES = 16 * 2**20

FAULTS_PER_SECOND = 10.0
"""The limit for a rank's major page faults per second.

On a hard disk, each fault causes a seek, and this many seeks take up a tenth of the time.
"""

DRIFT_CELSIUS = 15

HELD_BACK_SHARE = 0.01
"""A device is flagged if heat or its power limit throttles it for at least this share of the window."""

CLOCK_GAP_SECONDS = 1.0
"""The shortest gap that is flagged.

Clocks that are slewed to the correct time, by one part in ten thousand, drift by less than this.
"""

POWER_CAPS = ("SwPowerCap", "power cap")
"""Throttle reasons for a device at its power limit.

Many boards always reach this limit under load and run at a steady rate.
"""


def short_window(seconds: float, steps: int, measure: Measure) -> Doubt | None:
    """Return a doubt if a window of `steps` steps is much shorter than `min_seconds`, or has fewer than `min_steps`."""
    if seconds >= SHORT * measure.min_seconds and steps >= measure.min_steps:
        return None
    return Doubt(
        code="short_window",
        message=(
            f"the window had {steps} steps in {seconds:.2f} s, but {measure.min_steps} steps and "
            f"{measure.min_seconds:g} s were requested"
        ),
        remedy="raise measure.max_seconds if it had too few steps; otherwise measure.max_steps or measure.warmup_steps",
    )


def fixed_seed(script: str | None, run: int) -> Doubt | None:
    """Return a doubt if the user's own `script` seeds itself, so that repeats do not differ as their seeds do.

    `script` is the seed that Lightning was given, if any, and `run` the repeat's seed.
    """
    if script is None or script == str(run):
        return None
    return Doubt(
        code="fixed_seed",
        message=f"the script seeds itself with {script}, so all repeats train with the same seed",
        remedy="let the script take its seed as an argument, and name it under axes in accelsweep.yaml: {seed: KEY}",
    )


def other_precision(asked: str, found: str) -> Doubt | None:
    """Return a doubt about a script that computes in another precision than the setting asks for."""
    if asked == found:
        return None
    return Doubt(
        code="other_precision",
        message=f"the setting asks for {asked}, but the script computes in {found}",
        remedy="map the precision to the script's own options under values in accelsweep.yaml",
    )


def other_threads(asked: int, found: int) -> Doubt | None:
    """Return a doubt about a script that computes with another number of threads per rank than the run was given."""
    if asked == found:
        return None
    return Doubt(
        code="other_threads",
        message=f"each rank was given {count_of(asked, 'thread')}, but the script computes with {found}",
        remedy=f"set threads={found}, or do not set the number of threads in the script",
    )


def separate_ranks(ranks: int) -> Doubt | None:
    """Return a doubt about `ranks` of a script, none of which is seen to exchange gradients with the others."""
    if ranks == 1:
        return None
    return Doubt(
        code="separate_ranks",
        message=f"no wrapper that exchanges gradients was seen: the {ranks} ranks may train separate models",
        remedy="wrap the model in DistributedDataParallel or FSDP, unless the script itself exchanges gradients",
    )


PAUSED_SHARE = 0.1
"""The share of a window from which a script's pauses are stated."""


def pauses(count: int, seconds: float, steps: int, share: float) -> Doubt | None:
    """Return a doubt if `count` pauses, of `seconds` in all, took much of a window of `steps` steps.

    The training as a whole runs at `share` of the rate.
    """
    if 1 - share <= PAUSED_SHARE:
        return None
    every = f"about every {round(steps / count)} steps" if count > 1 else f"once in {steps} steps"
    return Doubt(
        code="pauses",
        message=(
            f"{every}, the script pauses for {significant(seconds / count)} s, for example to evaluate: the training "
            f"as a whole runs at {share:.0%} of this rate"
        ),
        remedy="evaluate, save and log less often, or more quickly",
    )


def unsteady(step_seconds: Sequence[float]) -> Doubt | None:
    """Return a doubt if the step times contain a level shift."""
    shift = level_shift(step_seconds)
    if shift is None:
        return None
    return Doubt(
        code="unsteady_window",
        message=(
            f"the step time changed from {shift.before_seconds * 1e3:.3g} ms to {shift.after_seconds * 1e3:.3g} ms "
            f"after {shift.at:.0%} of the window"
        ),
        remedy="raise measure.warmup_steps and measure.min_seconds, and look for other work on the machine",
    )


def recompiled(count: int, reasons: Sequence[str]) -> Doubt | None:
    """Return a doubt if torch.compile compiled graphs within the window; `reasons` are torch's own."""
    if not count:
        return None
    why = f": {'; '.join(reasons[:_LISTED_REASONS])}" if reasons else ""
    return Doubt(
        code="recompiled",
        message=f"{count_of(count, 'graph')} {'was' if count == 1 else 'were'} compiled within the window{why}",
        remedy=(
            "if shapes change, set compile_options.dynamic=true or give all batches one size; if not, raise "
            "measure.warmup_steps"
        ),
    )


_LISTED_REASONS = 3


def input_bound(verdict: str, evidence: str) -> Doubt | None:
    """Return a doubt if a step mostly waits for data, given the verdict on its breakdown and the evidence for it."""
    if not verdict.startswith("input-bound"):
        return None
    return Doubt(
        code="input_bound",
        message=f"{evidence}: the input pipeline limits the rate, and a faster device would not help",
        remedy=(
            "sweep the number of worker processes: add loader.num_workers=0,2,4 to the command (data.num_workers for "
            "shipped data)"
        ),
    )


def other_matmul_precision(asked: str | None, found: str) -> Doubt | None:
    """Return a doubt if the code has set another precision of matrix products than the setting asks for."""
    if asked in (None, found):
        return None
    return Doubt(
        code="other_matmul_precision",
        message=f"matmul_precision={asked}, but the code has set {found}, so {found} was measured",
        remedy="remove torch.set_float32_matmul_precision from the code, or matmul_precision from the sweep",
    )


def stalled(ranks: Sequence[RankStalls], total_seconds: float, without: str, what: str) -> Doubt | None:
    """Return a doubt if `what`, which lasted `total_seconds`, contains stalls.

    `without` describes the result without them. If all processes were idle, the cause is outside the run.
    """
    seconds, count = max(rank.seconds for rank in ranks), max(rank.count for rank in ranks)
    if not count:
        return None
    share = f"{seconds:.3g} s ({seconds / total_seconds:.0%} of {what})"
    if all_idle(ranks):
        return Doubt(
            code="processes_stopped",
            message=f"all processes were idle for {share}; without that {without}",
            remedy=(
                "measure it again; look for a suspended job, a paused container, a hung file system (dmesg), or a "
                "loader that waits for remote data"
            ),
        )
    affected = sum(rank.count > 0 for rank in ranks)
    where = "" if affected == len(ranks) else f" on {affected} of {len(ranks)} ranks"
    return Doubt(
        code="stall",
        message=f"{count_of(count, 'step')} took {share} longer than usual{where}; without that {without}",
        remedy=(
            "look for garbage collection, slow storage or infrequent work in the module; if stalls recur, raise "
            "measure.min_seconds until the window contains many of them"
        ),
    )


def clock_gap(seconds: float, what: str = "the window") -> Doubt | None:
    """Return a doubt if the measured duration of `what` is `seconds` shorter than the elapsed wall-clock time."""
    if seconds < CLOCK_GAP_SECONDS:
        return None
    return Doubt(
        code="clock_gap",
        message=(
            f"{seconds:.3g} s passed on the wall clock within {what} that its duration does not include: the machine "
            "slept or was paused, or its clock was set"
        ),
        remedy="measure it again, with sleep disabled and the lid open",
    )


def busy_cpu(foreign_cores: float | None, our_cores: float) -> Doubt | None:
    """Return a doubt if other processes may have taken CPU time from ours during the window."""
    cores = len(allowed_cores())
    if foreign_cores is None or foreign_cores < FOREIGN * cores or foreign_cores + our_cores < SATURATED * cores:
        return None
    return Doubt(
        code="busy_cpu",
        message=f"other processes kept {foreign_cores:.2f} of {cores} cores busy while we used {our_cores:.2f}",
        remedy="stop other work on this machine and measure again",
    )


def swapping(swapped_bytes: float) -> Doubt | None:
    """Return a doubt if the machine swapped during the window."""
    if swapped_bytes < SWAPPED_BYTES:
        return None
    return Doubt(
        code="swap",
        message=f"the machine swapped {swapped_bytes / 2**20:.0f} MiB during the window",
        remedy="free memory, or lower batch_size",
    )


def page_faults(faults: float, seconds: float) -> Doubt | None:
    """Return a doubt if a rank had many major page `faults` during a window of `seconds`."""
    if seconds <= 0 or faults / seconds < FAULTS_PER_SECOND:
        return None
    return Doubt(
        code="page_faults",
        message=f"a rank waited for {faults:.0f} pages from disk during the window ({faults / seconds:.0f} per second)",
        remedy="free memory, or copy memory-mapped data into memory before the window (data.placement)",
    )


def memory_grows(growth: tuple[str, int, int] | None) -> Doubt | None:
    """Return a doubt if a rank's memory grew throughout the window.

    `growth` contains the memory's name, the bytes by which it grew, and the number of steps.
    """
    if growth is None:
        return None
    place, grown, steps = growth
    return Doubt(
        code="memory_grows",
        message=(
            f"a rank's memory on {place} grew throughout the window, by {grown / 2**20:.0f} MiB "
            f"({grown / steps / 2**20:.2g} MiB per step)"
        ),
        remedy="keep no data from earlier steps (store loss.item(), not loss); let caches fill in measure.warmup_steps",
    )


def epoch_boundary(count: int) -> Doubt | None:
    """Return a doubt if the training data was restarted during the window; `count` is the number of restarts."""
    if count == 0:
        return None
    return Doubt(
        code="epoch_boundary",
        message=f"the training data ended and was restarted {count_of(count, 'time')} during the window",
        remedy="use data that outlasts the window, or accept that the rate includes restarts",
    )


def optimizer_batch(counts: Sequence[Counter[int]], accumulate: int, usual: int | None, samples: int) -> Doubt | None:
    """Return a doubt if optimiser steps used a different number of batches than the config accumulates.

    `counts` contains, for each optimiser, the number of steps per batch count; `usual` is the batch count of nearly all
    steps, if there is one. A batch contains `samples` samples across all ranks.
    """
    if usual == accumulate:
        return None
    expected = f"{_batches(accumulate, samples)} as set by trainer.accumulate_grad_batches={accumulate}"
    if not counts:
        message = f"no optimiser step ended in the window; each should use {expected}"
    else:
        distinct = dict.fromkeys(tuple(sorted(counter.items())) for counter in counts)
        actual = "; ".join(_batch_shares(counter, samples) for counter in distinct)
        message = f"an optimiser step used {actual}, not {expected}"
    return Doubt(
        code="optimizer_batch",
        message=message,
        remedy=(
            "accumulate a number of batches that divides an epoch (Lightning always steps at its end), in trainer "
            "rather than in a callback or the module; compare settings by effective.global_batch_size"
        ),
    )


def _batch_shares(counts: tuple[tuple[int, int], ...], samples: int) -> str:
    if len(counts) == 1:
        return _batches(counts[0][0], samples)
    total = sum(steps for _, steps in counts)
    return " or ".join(f"{_batches(batches, samples)}, {steps / total:.0%} of the steps" for batches, steps in counts)


def _batches(count: int, samples: int) -> str:
    return f"{count} batch{'' if count == 1 else 'es'} ({count * samples} samples)"


def device_doubts(before: MachineState, after: MachineState) -> list[Doubt]:
    """Return doubts based on the devices' states before and after a window: throttling, drift, foreign processes."""
    doubts: list[Doubt] = []
    for old, new in zip(before.devices, after.devices, strict=False):
        doubts += _throttled(old, new)
        doubts += _temperature_drift(new.name, old.celsius, new.celsius, "during the run")
        doubts += _foreign_processes(old, new)
    return doubts


_FEW_READINGS = 3
"""The temperature at either end of a window is the mean of this many readings."""

_SERIES_CODES = {
    "power_capped": "power_capped",
    "celsius": "temperature_drift",
    "foreign_processes": "foreign_process",
}
"""Quantities of a series -> the doubts that rest on them, rather than on two states."""


def with_series_doubts(
    doubts: Iterable[Doubt], devices: Mapping[int, Mapping[str, Sequence[float]]], names: Sequence[str]
) -> list[Doubt]:
    """Return a run's doubts, with those on its devices that rest on what was read during the window.

    They replace those that rest on two states if all devices were read. Where a driver names its reason for throttling,
    that doubt stays. `devices` contains the readings by the device's number and the quantity, and `names` the devices'
    names.
    """
    given = list(doubts)
    replaced = {
        code
        for quantity, code in _SERIES_CODES.items()
        if devices and all(_is_enough(quantity, readings) for readings in devices.values())
    }
    found = [doubt for doubt in given if doubt.code not in replaced]
    is_known = any(doubt.code == "throttled" for doubt in found)
    for number, readings in devices.items():
        name = names[min(number, len(names) - 1)] if names else "device"
        name = name if len(devices) == 1 else f"{name} {number}"
        found += [
            doubt
            for doubt in _series_doubts(name, readings)
            if doubt.code in replaced or (doubt.code == "throttled" and not is_known)
        ]
    users = next((doubt for doubt in given if doubt.code == "foreign_process"), None)  # it names the processes
    return [
        replace(doubt, message=f"{doubt.message} ({users.message})")
        if users is not None and doubt.code == "foreign_process" and doubt is not users
        else doubt
        for doubt in found
    ]


def _is_enough(quantity: str, readings: Mapping[str, Sequence[float]]) -> bool:
    return len(readings.get(quantity, ())) >= (2 * _FEW_READINGS if quantity == "celsius" else 1)


def _series_doubts(name: str, readings: Mapping[str, Sequence[float]]) -> Iterator[Doubt]:
    capped, throttled = (readings.get(quantity, ()) for quantity in ("power_capped", "throttled"))
    if throttled and (share := statistics.fmean(throttled)) >= HELD_BACK_SHARE:
        yield _throttled_doubt(f"{name} ran slower than it could for {share:.0%} of the window")
    if capped and (share := statistics.fmean(capped)) >= HELD_BACK_SHARE:
        watts = readings.get("power_limit_watts", ())
        limit = f" ({statistics.fmean(watts):.0f} W)" if watts else ""
        yield _power_capped_doubt(f"{name} was at its power limit{limit} for {share:.0%} of the window")
    celsius = readings.get("celsius", ())
    if _is_enough("celsius", readings):
        ends = statistics.fmean(celsius[:_FEW_READINGS]), statistics.fmean(celsius[-_FEW_READINGS:])
        yield from _temperature_drift(name, *ends, "during the window")
    foreign = readings.get("foreign_processes", ())
    if foreign and max(foreign) > 0:
        seen = sum(count > 0 for count in foreign)
        yield _foreign_process_doubt(f"other processes were using {name} in {seen} of {len(foreign)} readings")


def governor(name: str | None) -> Doubt | None:
    """Return a doubt if the CPU's clock rate depends on the load; `name` is the frequency governor, or None."""
    if name in (None, "performance"):
        return None
    return Doubt(
        code="cpu_governor",
        message=f"the processor's frequency governor is {name!r}: clock rates and step times depend on the load",
        remedy="as root: cpupower frequency-set --governor performance; otherwise trust small differences less",
    )


def _throttled(before: DeviceState, after: DeviceState) -> Iterator[Doubt]:
    """Yield `throttled` for heat and faults, and `power_capped` for a device at its power limit."""
    reasons = [(reason, reason) for reason in dict.fromkeys([*before.throttles, *after.throttles])]
    reasons += [(reason, f"{reason} for {share:.0%} of the time") for reason, share in _held_back(before, after)]
    throttled = [text for reason, text in reasons if reason not in POWER_CAPS]
    capped = [text for reason, text in reasons if reason in POWER_CAPS]
    if throttled:
        yield _throttled_doubt(f"{after.name} ran slower than it could: {', '.join(throttled)}")
    if capped:
        yield _power_capped_doubt(f"{after.name} ran at its power limit: {', '.join(capped)}")


def _throttled_doubt(message: str) -> Doubt:
    remedy = "improve cooling, check the board for faults, or lock lower clocks for all runs"
    return Doubt(code="throttled", message=message, remedy=remedy)


def _power_capped_doubt(message: str) -> Doubt:
    return Doubt(
        code="power_capped",
        message=message,
        remedy="none if it always runs at this limit; otherwise raise the limit, or lock lower clocks for all runs",
    )


def _held_back(before: DeviceState, after: DeviceState) -> Iterator[tuple[str, float]]:
    """Yield each reason for which the device was throttled between the two states, with its share of the time."""
    for reason, end in after.held_back.items():
        share = held_back_share(before.held_back.get(reason), end)
        if share is not None and share >= HELD_BACK_SHARE:
            yield reason, share


def held_back_share(start: Sequence[float] | None, end: Sequence[float] | None) -> float | None:
    """Return the share of time for which a device was throttled between two readings of a counter and its clock."""
    if start is None or end is None or end[1] <= start[1]:
        return None
    return min((end[0] - start[0]) / (end[1] - start[1]), 1.0)


def _temperature_drift(name: str | None, cold: float | None, warm: float | None, when: str) -> Iterator[Doubt]:
    if cold is None or warm is None or abs(warm - cold) < DRIFT_CELSIUS:
        return
    yield Doubt(
        code="temperature_drift",
        message=f"{name} changed from {cold:.3g} to {warm:.3g} degrees Celsius {when}",
        remedy="raise measure.warmup_steps so that the device is warm when the window opens",
    )


def _foreign_processes(before: DeviceState, after: DeviceState) -> Iterator[Doubt]:
    others = sorted({*before.foreign_processes, *after.foreign_processes})
    if others:
        yield _foreign_process_doubt(f"other processes are using {after.name}: {', '.join(map(str, others))}")


def _foreign_process_doubt(message: str) -> Doubt:
    return Doubt(code="foreign_process", message=message, remedy="stop them, or use a device of your own")

"""Calibration: known truths against the clock of a step, energy, ceilings and doubts."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import cases
from board import Board, Samples
from checks import CannotApply, Check, Findings
from place import Place, Record, environment, stop, wait_for

DOUBTED = {"power cap": "power_capped", "heat": "throttled"}
"""The doubt that belongs to each reason for which a driver holds a device back."""

KEPT_WAITING = 0.1
"""Seconds for which a busy host may leave a small sweep waiting before it reads the clock, with the device idle."""

SHORT = {"min_seconds": 2, "probe_steps": "null", "quality_samples": "null"}
TINY = SHORT | {"min_seconds": 0, "warmup_steps": 2, "min_steps": 5, "max_steps": 5}


def window(place: Place, repeats: int = 1) -> tuple[str, ...]:
    """Return the overrides of a measuring window: short on a device, a few steps where everything is small."""
    keys = TINY if place.small else SHORT
    return (*(f"measure.{key}={value}" for key, value in keys.items()), f"repeats={repeats}")


def by_case(records: list[Record], only: str = "") -> dict[str, Record]:
    """Return the records by the value of the axis `case`. Raises LookupError with the reasons if one has no number.

    Where a sweep has one case alone, `only`, this is no axis, and no record names it.
    """
    bad = [f"{one.body['axes']}: {one.outcome} ({one.body['reason']})" for one in records if one.outcome != "measured"]
    if bad:
        raise LookupError("; ".join(bad))
    return {record.body["axes"].get("case", only): record for record in records}


def events_against_clock(findings: Findings, records: dict[str, Record], tolerance: float, *, busy: bool) -> None:
    """Compare the sum of the steps' own times with the seconds of the window by the host's clock, record by record.

    On a `busy` host the clock may be read late, so that it shows some more.
    """
    rows, late = [], KEPT_WAITING if busy else 0.0
    sentence = f"{{}}: the steps' times add up to the window within {tolerance:.1%} and {late:g} s"
    for name, record in sorted(records.items()):
        steps, clock = record.window_steps(), record.seen("window_seconds")
        summed = math.fsum(steps)
        rows.append((name, len(steps), clock, summed, summed / clock))
        apart = max(clock - late - summed, summed - clock, 0.0)
        findings.expect(sentence.format(name), apart <= tolerance * clock, f"ratio {summed / clock:.4f}")
    findings.table("Steps' times against the clock", ("case", "steps", "clock s", "steps s", "ratio"), rows)


def known_steps(place: Place, findings: Findings) -> None:
    """A kernel of known length takes that long, both by the record's rate and by its steps."""
    lengths = (0.002, 0.02)
    place.cases({f"known_{round(length * 1e6)}us": cases.known(length) for length in lengths})
    names = ",".join(f"known_{round(length * 1e6)}us" for length in lengths)
    more = ("measure.min_steps=100", "measure.max_steps=100") if place.device == "simulated" else ()
    found = by_case(place.sweep("known", "experiment=cases", f"case={names}", *window(place), *more))
    rows = []
    for length in lengths:
        name = f"known_{round(length * 1e6)}us"
        steps = found[name].window_steps()
        mean, median = found[name].seen("window_seconds") / len(steps), sorted(steps)[len(steps) // 2]
        rows.append((name, length * 1e3, mean * 1e3, median * 1e3))
        findings.expect(f"{name} takes no less than it is told", median >= 0.98 * length, f"{median:.6f} s")
        if not place.small:
            findings.near(f"{name}: the mean step", mean, length, 0.02)
        if place.asynchronous:
            findings.near(f"{name}: the median step", median, length, 0.02)
    findings.table("A kernel of known length", ("case", "told ms", "mean ms", "median ms"), rows)
    if place.small:
        findings.note("at small scale no mean is judged: a busy host may make any step longer")
    events_against_clock(findings, found, 0.05 if place.small else 0.01, busy=place.small)


def ceilings(place: Place, findings: Findings) -> None:
    """Matrix products and copies reach a plausible part of the datasheet's dense peak."""
    wanted = cases.kernels(place.small)
    place.cases(wanted)
    found = by_case(place.sweep("kernels", "experiment=cases", f"case={','.join(wanted)}", *window(place)))
    rows = []
    for name, record in sorted(found.items()):
        metric = "bytes_per_second" if name == "copy" else "flops_per_second"
        value, sheet = record.seen(metric), _sheet(record, name)
        rows.append((name, value / 1e12, sheet and sheet / 1e12, sheet and value / sheet, ", ".join(record.doubts)))
        findings.expect(f"{name} has a rate", value > 0, f"{value:.3g}")
        if sheet is not None:
            findings.expect(f"{name} reaches 40-102 % of the datasheet", 0.4 <= value / sheet <= 1.02, value / sheet)
    columns = ("kernel", "seen T/s", "datasheet T/s", "share", "doubts")
    findings.table("Ceilings: 10^12 operations, for the copy bytes, per second", columns, rows)
    if all(row[2] is None for row in rows):
        findings.note("no datasheet is known for this device, so the rates are shown and judged by nothing")


def _sheet(record: Record, name: str) -> float | None:
    from accelsweep.devices.datasheets import datasheet_of

    sheet = datasheet_of(record.body["effective"]["device_names"][0])
    if sheet is None:
        return None
    if name == "copy":
        return sheet.bandwidth_bytes_per_second
    return sheet.flops_per_second.get(name.removeprefix("matmul_"))


def energy(place: Place, findings: Findings) -> None:
    """The energy counter agrees with the integrated power, the record with both, and its doubts with the driver."""
    board = place.board()
    place.cases({"matmul": cases.known(0.02) if place.small else cases.kernels(small=False)["matmul_bfloat16"]})
    seconds = ("measure.min_seconds=2", "measure.max_steps=1000") if place.small else ("measure.min_seconds=6",)
    held = board.held_back_seconds()
    with Samples(board) as samples:
        time.sleep(1.5)  # the driver's power is the mean of the last second: begin and end idle
        overrides = ("experiment=cases", "case=matmul", *window(place), *seconds)
        record = by_case(place.sweep("energy", *overrides), "matmul")["matmul"]
        time.sleep(1.5)
    joules, lasted = record.seen("energy_joules"), record.seen("window_seconds")
    integrated, busy = samples.integrated_joules(), sorted(samples.watts)[int(0.98 * len(samples.watts))]
    rows = [
        ("counter, whole sweep", samples.counted_joules, None),
        ("power integrated, whole sweep", integrated, None),
        ("record, its window", joules, joules / lasted),
        ("98th percentile of the power samples", None, busy),
        ("enforced limit", None, board.watts_limit()),
    ]
    findings.table("Energy", ("what", "J", "W"), rows)
    findings.near("the counter and the integrated power agree", samples.counted_joules, integrated, 0.05)
    findings.near("the record's mean power and the highest samples agree", joules / lasted, busy, 0.15)
    limits_and_doubts(findings, record, _longer(held, board.held_back_seconds()), lasted)


def _longer(before: dict[str, float | None], after: dict[str, float | None]) -> dict[str, float | None]:
    return {
        word: None if first is None or (last := after[word]) is None else last - first for word, first in before.items()
    }


def limits_and_doubts(findings: Findings, record: Record, held: dict[str, float | None], window_seconds: float) -> None:
    """Compare the doubts with the driver's counters over the whole sweep, which holds the window."""
    findings.table("Time for which the driver held the device back", ("reason", "s"), list(held.items()))
    states = [record.body["environment"].get(when, {}).get("devices", [{}])[0] for when in ("opened", "closed")]
    words = [word for state in states for word in state.get("throttles") or ()]
    for reason, seconds in held.items():
        code = DOUBTED[reason]
        seen = f"doubts {record.doubts}, held back {seconds} s, bits {words}"
        if seconds is None:
            findings.note(f"the driver keeps no time of {reason}")
        elif seconds > 0.2 * window_seconds:
            findings.expect(f"a device held back by {reason} is doubted: {code}", code in record.doubts, seen)
        elif seconds < 0.005 * window_seconds and not words:
            findings.expect(f"what was never held back by {reason} is not doubted", code not in record.doubts, seen)
        else:
            findings.note(f"held back too little by {reason} to judge: {seen}")


def heat(place: Place, findings: Findings) -> None:
    """A device that slows down inside the window is doubted, and its steps show the slower clock."""
    place.cases({"hot": cases.known(0.02)})
    steps = ("measure.warmup_steps=5", "measure.min_steps=60", "measure.max_steps=60")
    with place.board().hot_after(0.5):
        record = by_case(place.sweep("hot", "experiment=cases", "case=hot", *window(place), *steps), "hot")["hot"]
    seconds = sorted(record.window_steps())
    findings.table(
        "Steps of a device that heats up", ("fastest ms", "slowest ms"), [(seconds[0] * 1e3, seconds[-1] * 1e3)]
    )
    findings.expect("it is doubted", "throttled" in record.doubts, record.doubts)
    findings.near("the slower steps", seconds[-len(seconds) // 4], 2 * 0.02, 0.05)


def foreign_process(place: Place, findings: Findings) -> None:
    """A second process that computes on the device causes a doubt; without it there is none."""
    board = place.board()
    place.cases({"beside": cases.known(0.005), "alone": cases.known(0.005)})
    before = place.records("known") or place.sweep("alone", "experiment=cases", "case=alone", *window(place))
    mark = place.home / "occupant.pid"
    command = [sys.executable, "occupant.py", place.device, str(mark)]
    with (place.home / "occupant.log").open("wb") as log:
        occupant = subprocess.Popen(
            command, cwd=place.home, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(mark.exists, "the second process on the device")
        seen_by_nvml = occupant.pid in board.processes()
        beside = by_case(place.sweep("beside", "experiment=cases", "case=beside", *window(place)), "beside")["beside"]
    finally:
        stop(occupant, patience=5.0)
    findings.note(f"NVML shows the second process under its own id: {'yes' if seen_by_nvml else 'no'}")
    if not seen_by_nvml:
        raise CannotApply("NVML does not show processes by ids that exist here (a container), so nobody can be told")
    doubts = [code for record in before for code in record.doubts]
    findings.expect("a device of one's own is not doubted", "foreign_process" not in doubts, doubts)
    findings.expect("a second process is doubted", "foreign_process" in beside.doubts, beside.doubts)
    _clean(board, findings, "after both")


def _clean(board: Board, findings: Findings, when: str) -> None:
    done, left = board.clean()
    findings.expect(f"{when} the device is as idle as before", done, left)


CHECKS = (
    Check("calibration", "steps of known length", 0.8, known_steps),
    Check("calibration", "ceilings against the datasheet", 1.7, ceilings),
    Check("calibration", "energy and limits", 0.6, energy),
    Check("calibration", "a device that slows down is doubted", 0.0, heat),
    Check("calibration", "a foreign process is doubted", 0.5, foreign_process),
)

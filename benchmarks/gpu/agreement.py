"""Fidelity: the harness measures the rate of a hand-written loop, however its processes start, and no step waits."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import cases
from calibration import by_case, window
from checks import CannotApply, Check, Findings
from place import Place, environment

BAND = 0.01


def against_by_hand(place: Place, findings: Findings) -> None:
    """The harness's rate, forked and spawned, is within 1 % of that of a hand-written loop before and after them."""
    place.cases({"fork": cases.harness(place.small), "spawn": cases.harness(place.small) | {"launcher": "spawn"}})
    rates: dict[str, list[float]] = {"by hand": [by_hand(place)], "fork": [], "spawn": []}
    longer = () if place.small else ("measure.min_seconds=5", "measure.warmup_steps=20")
    found = by_case(place.sweep("fidelity", "experiment=cases", "case=fork,spawn", *window(place), *longer))
    for launcher, record in found.items():
        rates[launcher].append(record.seen("samples_per_second"))
    rates["by hand"].append(by_hand(place))
    middle = {kind: statistics.median(values) for kind, values in rates.items()}
    rows = [(kind, middle[kind], middle[kind] / middle["by hand"], *spread(rates[kind])) for kind in rates]
    columns = ("loop", "samples/s", "over by hand", "lowest", "highest")
    findings.table("The harness against a loop by hand (ResNet-50, bf16-mixed, one batch on the device)", columns, rows)
    findings.expect("all three have rates", min(middle.values()) > 0, middle)
    if place.small:
        findings.note("at small scale the ratios are shown and not judged: two busy cores cannot tell 1 %")
        return
    findings.near("forked, against by hand", middle["fork"], middle["by hand"], BAND)
    findings.near("spawned, against by hand", middle["spawn"], middle["by hand"], BAND)
    findings.near("forked against spawned", middle["fork"], middle["spawn"], BAND)


def spread(values: list[float]) -> tuple[float, float]:
    """Return the lowest and the highest."""
    return min(values), max(values)


def by_hand(place: Place) -> float:
    """Return the rate of the hand-written loop, in a process of its own."""
    spec = place.home / "by_hand.json"
    spec.write_text(json.dumps(cases.spec_by_hand(place.small, place.device)), "utf-8")
    command = [sys.executable, "by_hand.py", str(spec)]
    done = subprocess.run(
        command, cwd=place.home, env=environment(), capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"the loop by hand failed:\n{done.stderr[-1500:]}")
    return float(done.stdout.split()[-1])


def nothing_waits(place: Place, findings: Findings) -> None:
    """The profiler sees no call inside the window that holds the host until the device is done."""
    if not place.asynchronous:
        raise CannotApply(
            f"work on a {place.device} device is done when its call returns: there is nothing to wait for"
        )
    rows, traces = [], {loop: place.home / f"trace_{loop}.json" for loop in ("lightning", "raw")}
    for loop, file in traces.items():
        model = {"_target_": "traced.TracedMLP", "trace": str(file), "image_size": 8, "channels": 1}
        case = cases.chosen("mlp", "random_images", model=model, loop=loop, batch_size=64)
        place.cases({loop: case | {"data": {"placement": "resident"}}})
    steps = ("measure.warmup_steps=10", "measure.min_steps=80", "measure.max_steps=80", "measure.min_seconds=0")
    by_case(place.sweep("traces", "experiment=cases", f"case={','.join(traces)}", *window(place), *steps))
    for loop, file in traces.items():
        seen = json.loads(file.read_text("utf-8"))
        waits = sum(seen["waits"].values())
        rows.append((loop, seen["steps"], seen["launches"], *seen["waits"].values()))
        findings.expect(f"loop={loop}: the trace holds launched kernels", seen["launches"] > 0, seen["launches"])
        findings.expect(f"loop={loop}: nothing waits inside the window", waits == 0, seen["waits"])
        columns = ("loop", "steps", "launches", *seen["waits"])
    findings.table("Waits and launches during steps of the window", columns, rows)


CHECKS = (
    Check("fidelity", "harness against a loop by hand; fork and spawn", 1.7, against_by_hand),
    Check("fidelity", "nothing waits inside the window", 0.4, nothing_waits),
)

"""The acceptance of a device, in one command: `make gpu`, or `python benchmarks/gpu --device cuda --minutes 14`.

A check that does not apply to the device is reported with the reason. The exit code is 1 if a check failed or was not
reached, else 0. A check marked optional may stay unreached. Evidence is written after every check.
"""

from __future__ import annotations

import argparse
import datetime
import re
import signal
import sys
import tempfile
from pathlib import Path

import agreement
import calibration
import evidence
import robustness
import truth
from checks import Check, Result, run_all
from place import ROOT, Place

CHECKS: tuple[Check[Place], ...] = (
    *calibration.CHECKS,
    *agreement.CHECKS,
    *robustness.CHECKS[:2],
    *truth.CHECKS,
    *robustness.CHECKS[2:],
    *truth.LATER,
)
"""The cheap and most important checks come first, because the last ones are lost when the lease is spent."""

OUT = "the folder of the evidence (default: gpu-DEVICE-DATE in docs/evidence; at small scale in dist, as it is none)"

FULL_SIZE = ("cuda",)
"""The kinds of device on which workloads have their full size."""


MINUTES = 14.0
"""For all checks that are not optional, on an H100 whose image takes 15 seconds to import torch and Lightning."""

SMALL_MINUTES = 30.0
"""For all checks at small scale, on cores that others use too."""


def main(arguments: list[str] | None = None) -> int:
    """Run the checks that are asked for; return the exit code."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="acceptance-") as folder:
        place = Place(options.home or Path(folder), options.device, options.device not in FULL_SIZE)
        place.prepare()
        environment = evidence.describe(place)
        out = options.out or ROOT / ("dist" if place.small else "docs/evidence") / _named(environment)
        wanted = [check for check in CHECKS if re.search(options.only, f"{check.group}: {check.name}")]

        def written(results: list[Result]) -> None:
            evidence.write(out, environment, results, place)
            _tell(results[-1])

        minutes = options.minutes if options.minutes is not None else SMALL_MINUTES if place.small else MINUTES
        results = run_all(wanted, place, 60 * minutes, written)
    refused = [result for result in results if not result.accepted]
    print(f"{len(results) - len(refused)} of {len(results)} checks accepted; evidence in {out}")
    return 1 if refused or not results else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="what the sweeps are run on: cuda, simulated or cpu")
    parser.add_argument("--minutes", type=float, help="no check begins that would take longer (14; at small scale 30)")
    parser.add_argument("--only", default="", help="a regular expression that `group: check` must match")
    parser.add_argument("--out", type=Path, help=OUT)
    parser.add_argument("--home", type=Path, help="where the sweeps are kept (default: a folder that is deleted)")
    return parser.parse_args(arguments)


def _named(environment: dict[str, object]) -> str:
    device = environment["device"]
    assert isinstance(device, dict)
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(device.get("name", device["kind"]))).strip("-").lower()
    return f"gpu-{name}-{datetime.datetime.now(datetime.UTC).date()}"


def _tell(result: Result) -> None:
    print(f"{result.status:15} {result.seconds:6.1f} s  {result.group}: {result.name}", flush=True)
    for table in result.findings.tables:
        print("\n".join(evidence.markdown(table)), flush=True)
    for note in result.findings.notes:
        print(f"    {note}", flush=True)
    if result.reason:
        print("    " + result.reason.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    # A shell's background job hands down that SIGINT is ignored. The check of Ctrl-C wants it heard.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())

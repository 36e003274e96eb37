"""Sweep the quickstart while others use all cores in bursts, and compare the verdicts with those of a quiet machine.

    python benchmarks/bursts.py [--sweeps 5] [--share 0.3] [--burst 8] [--out docs/evidence/bursts-DATE] [OVERRIDE ...]

Before and after those sweeps, one is measured without bursts: leave the machine alone. During a burst, one process for
each core counts as fast as it can. The lengths of bursts and of the pauses between them are exponentially distributed
with means of `--burst` seconds and of what makes `--share`. Prints a Markdown page, and keeps each sweep's output.

Returns 1 if a comparison is undecided whose quiet ratio lies beyond 1.5x and which both quiet sweeps decide, if fewer
than three are decided, if one is decided against the quiet intervals, or if a sweep takes more than twice as long as
the quiet ones on average.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelsweep.devices.linux import usable_cores

BIG = 1.5
DECIDED = ("faster", "slower", "same")


@dataclass(frozen=True)
class Sweep:
    """What one sweep found: minutes, attempts that were measured again, the headline, and each comparison."""

    name: str
    minutes: float
    again: int
    headline: str
    verdicts: dict[str, str]
    ratios: dict[str, tuple[float, float, float]]

    @property
    def decided(self) -> dict[str, str]:
        """The comparisons with a verdict, by the name of the setting."""
        return {label: verdict for label, verdict in self.verdicts.items() if verdict in DECIDED}


def _count_until(end: float) -> None:
    number = 0
    while time.monotonic() < end:
        number += 1


def _bursts(share: float, mean: float, seed: int) -> None:
    draw, cores = random.Random(seed), usable_cores()
    while True:
        time.sleep(draw.expovariate(1 / (mean * (1 - share) / share)))
        end = time.monotonic() + draw.expovariate(1 / mean)
        others = [multiprocessing.Process(target=_count_until, args=(end,)) for _ in range(cores)]
        for other in others:
            other.start()
        for other in others:
            other.join()


@contextmanager
def bursts(share: float, mean: float, seed: int) -> Iterator[None]:
    """Use all cores in bursts, until the context ends."""
    load = multiprocessing.Process(target=_bursts, args=(share, mean, seed))
    load.start()
    try:
        yield
    finally:
        load.kill()  # a last burst ends by itself
        load.join()


def sweep(home: Path, name: str, out: Path, overrides: list[str]) -> Sweep:
    """Sweep, keep what was printed, and read what was found."""
    command = [sys.executable, "-m", "accelsweep", "run", "experiment=quickstart", "--name", name, *overrides]
    started = time.monotonic()
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    minutes = (time.monotonic() - started) / 60
    (out / f"{name}.log").write_text(done.stdout + done.stderr, "utf-8")
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads((home / "sweeps" / name / "findings.json").read_text("utf-8"))["body"]
    compared = [one for one in found["settings"] if one["speedup"]]
    ratios = {one["label"]: one["speedup"]["ratio"] for one in compared}
    return Sweep(
        name,
        minutes,
        sum(len(run["earlier_attempts"]) for one in found["settings"] for run in one["runs"]),
        found["recommendation"]["headline"],
        {one["label"]: one["verdict"] for one in compared},
        {label: (ratio["value"], ratio["low"], ratio["high"]) for label, ratio in ratios.items()},
    )


def against(verdict: str, quiet: list[tuple[float, float, float]]) -> bool:
    """Return whether a verdict contradicts the intervals of all quiet sweeps."""
    return (verdict == "faster" and all(high < 1 for *_, high in quiet)) or (
        verdict == "slower" and all(low > 1 for _, low, _ in quiet)
    )


def judged(one: Sweep, quiet: list[Sweep]) -> list[str]:
    """Return what is wrong with a sweep beside bursts."""
    wrong = []
    if len(one.decided) < 3:
        wrong.append(f"only {len(one.decided)} comparisons are decided")
    for label in one.verdicts:
        known = [sweep.ratios[label] for sweep in quiet if label in sweep.ratios]
        mean = sum(value for value, *_ in known) / len(known)
        expected = max(mean, 1 / mean) > BIG and all(label in sweep.decided for sweep in quiet)
        if expected and label not in one.decided:
            wrong.append(f"{label} is undecided, but {mean:.1f}x on a quiet machine")
        if against(one.verdicts[label], known):
            wrong.append(f"{label} is called {one.verdicts[label]}, against the quiet intervals")
    if one.minutes > 2 * sum(sweep.minutes for sweep in quiet) / len(quiet):
        wrong.append("it took more than twice as long as the quiet sweeps")
    return wrong


def page(quiet: list[Sweep], loud: list[Sweep], options: argparse.Namespace) -> tuple[str, int]:
    """Return the page, and the number of complaints."""
    complaints = [f"{one.name}: {wrong}" for one in loud for wrong in judged(one, quiet)]
    rows = ["| sweep | minutes | runs measured again | decided | headline |", "|---|---|---|---|---|"]
    rows += [
        f"| {one.name} | {one.minutes:.1f} | {one.again} | {len(one.decided)} of {len(one.verdicts)} | {one.headline} |"
        for one in [*quiet, *loud]
    ]
    columns = [*quiet, *loud]
    table = ["| setting |" + "".join(f" {one.name} |" for one in columns), "|---|" + "---|" * len(columns)]
    for label in quiet[0].ratios:
        cells = [
            f" {one.verdicts[label]}, {one.ratios[label][1]:.2f} to {one.ratios[label][2]:.2f} |"
            if label in one.ratios
            else " - |"
            for one in columns
        ]
        table.append(f"| {label} |" + "".join(cells))
    lines = [
        "# The quickstart beside others who use the machine",
        "",
        f"`python benchmarks/bursts.py` wrote this page on {datetime.now(UTC):%Y-%m-%d}. In {options.sweeps} of the "
        f"sweeps, others used all {usable_cores()} cores in bursts of {options.burst:g} s on average, "
        f"{options.share:.0%} of the time. The logs are next to this page.",
        "",
        *rows,
        "",
        "Verdicts, and intervals of the speed-up:",
        "",
        *table,
        "",
        "Against the aims: " + ("; ".join(complaints) if complaints else "nothing") + ".",
    ]
    return "\n".join(lines) + "\n", len(complaints)


def main() -> int:
    """Sweep, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.3, help="of the time, during which others are busy")
    parser.add_argument("--burst", type=float, default=8.0, help="mean length of a burst in seconds")
    parser.add_argument("--out", type=Path, default=Path("dist/bursts"))
    parser.add_argument("overrides", nargs="*", help="of the sweeps")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home, quiet, loud = Path(folder), list[Sweep](), list[Sweep]()
        quiet.append(sweep(home, "quiet-1", options.out, options.overrides))
        for number in range(1, options.sweeps + 1):
            with bursts(options.share, options.burst, number):
                loud.append(sweep(home, f"bursts-{number}", options.out, options.overrides))
            print(loud[-1].name, f"{loud[-1].minutes:.1f} minutes:", loud[-1].headline, file=sys.stderr, flush=True)
        quiet.append(sweep(home, "quiet-2", options.out, options.overrides))
    text, complaints = page(quiet, loud, options)
    (options.out / "results.md").write_text(text, "utf-8")
    print(text, end="")
    return int(complaints > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""What comparing commits costs, how often it raises an alarm for nothing, and how soon it finds 3 %. On this machine.

    python benchmarks/ab.py [--part overhead|gates|truth] [--gates 40] [--rounds 3] [--truths 3] [--fail-if slower:2%]

All parts use a repository made for them, the command line, and a module whose step spins for a known time. `overhead`
lets a sweep of one version and one of two take turns, and prints the seconds a run beyond its steps. `gates` runs
`ab --until-decided --fail-if ...` on two commits that differ in a comment only, and counts the alarms. `truth` runs
it on steps of 5.00 ms and of 5.15 ms. Nothing else may run on the machine. Prints a Markdown table for each part.
Exit code 1 if more than 5 % of the gates raise an alarm, or the 3 % are not found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records

ALARMS = 0.05
"""The most gates on equal commits that may raise an alarm."""

BEFORE, AFTER = 5.00, 5.15
"""Milliseconds of a step in the first commit, and in the one that is slower."""

MODULE = """\
from accelsweep.testing.calibration import TimedStep

class Timed(TimedStep):
    def __init__(self):
        super().__init__(seconds={seconds})
"""

EXPERIMENT = """\
# @package _global_
defaults: [{override /model: own}, {override /data: own}]
model: {_target_: timed.Timed}
data: {_target_: accelsweep.testing.calibration.TimedData}
accelerator: cpu
threads: 1
loop: raw
measure: {warmup_steps: 10, min_steps: 50, max_steps: 100000, quality_samples: null, probe_steps: null}
"""

IGNORED = "sweeps/\nreports/\nmlflow.db*\n__pycache__/\n"
GATE = ("--until-decided", "--json")


@dataclass(frozen=True)
class Bench:
    """A repository as a user has it; `seconds` are those of each timed window."""

    home: Path
    seconds: float

    @classmethod
    def at(cls, home: Path, seconds: float, after: str) -> Bench:
        """Make the repository, with a second commit that has `after` for its module."""
        made = cls(home, seconds)
        (home / "conf" / "experiment").mkdir(parents=True)
        (home / "conf" / "experiment" / "timed.yaml").write_text(EXPERIMENT)
        (home / ".gitignore").write_text(IGNORED)
        made.git("init", "--quiet")
        for text in (MODULE.format(seconds=BEFORE / 1000.0), after):
            (home / "timed.py").write_text(text)
            made.git("add", "--all")
            made.git("commit", "--quiet", "--message", "a step")
        return made

    def git(self, *arguments: str) -> None:
        """Call git as a user who is known by name."""
        known = ("-c", "user.name=N", "-c", "user.email=n@example.org")
        subprocess.run(["git", *known, *arguments], cwd=self.home, check=True)

    def accelsweep(self, *arguments: str, codes: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
        """Call accelsweep; any other exit code than `codes` ends the benchmark."""
        command = [sys.executable, "-m", "accelsweep", *arguments, f"measure.min_seconds={self.seconds}"]
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def beyond_steps(self, name: str) -> list[float]:
        """Return, for each run but the last of its block, the seconds to the next run's start beyond its own steps."""
        folder = SweepFolder(self.home, name)
        manifest = Manifest.read(folder.manifest)
        found = []
        for block in manifest.blocks:
            records = sorted(readable_records(folder, block.runs), key=lambda record: record.started_at)
            begins = [datetime.fromisoformat(record.started_at).timestamp() for record in records]
            for record, begin, following in zip(records[:-1], begins, begins[1:], strict=False):
                table = pyarrow.parquet.read_table(folder.steps(record.run), columns=["step_seconds"])
                found.append(following - begin - float(sum(table["step_seconds"].to_pylist())))
        return found


def overhead(scratch: Path, seconds: float, given: argparse.Namespace) -> int:
    """Print the seconds a run beyond its steps, of one version and of two, which take turns; return 0."""
    bench = Bench.at(scratch / "overhead", seconds, commented())
    beyond: dict[str, list[float]] = {"one version": [], "two versions": []}
    whole: dict[str, list[float]] = {name: [] for name in beyond}
    for number in range(given.rounds):
        for name, words, seeds in (
            ("one version", ["run"], 2 * given.settings),
            ("two versions", ["ab", "HEAD~1", "HEAD"], given.settings),
        ):
            sweep = f"{words[0]}-{number}"
            seed = ",".join(str(1000 * one) for one in range(seeds))
            started = time.perf_counter()
            bench.accelsweep(*words, "experiment=timed", "repeats=1", f"seed={seed}", "--name", sweep)
            whole[name].append(time.perf_counter() - started)
            beyond[name] += bench.beyond_steps(sweep)
    print(f"\n{given.rounds} rounds of {2 * given.settings} runs each; seconds.\n")
    print("| | beyond the steps, a run | least | most | the whole command |\n|---|---|---|---|---|")
    for name, each in beyond.items():
        cells = (median(each), min(each), max(each), median(whole[name]))
        print(f"| {name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    more = median(beyond["two versions"]) - median(beyond["one version"])
    print(f"\nA run of two versions costs {more:+.3f} s against one of one version.")
    return 0


def gates(scratch: Path, seconds: float, given: argparse.Namespace) -> int:
    """Print what gates on two equal commits said; return 1 for too many alarms."""
    bench = Bench.at(scratch / "gates", seconds, commented())
    answers, took = zip(*(gate(bench, f"gate-{number}", given) for number in range(given.gates)), strict=True)
    states = Counter(str(answer["gate"]) for answer in answers)
    faster = sum(row["verdict"] == "faster" for answer in answers for row in answer["rows"])
    blocks = [row["blocks"] for answer in answers for row in answer["rows"]]
    print(f"\n{given.gates} gates on two equal commits, {given.fail_if}.\n")
    print("| answer | gates |\n|---|---|")
    for state in ("regression", "shown absent", "none found", "not measured"):
        print(f"| {state} | {states[state]} |")
    print(f"| faster, which is wrong too | {faster} |")
    print(f"\nBlocks: median {median(blocks):g}, most {max(blocks)}. Seconds a gate: median {median(took):.0f}.")
    return int(states["regression"] > ALARMS * given.gates)


def truth(scratch: Path, seconds: float, given: argparse.Namespace) -> int:
    """Print in how many blocks the slower commit was found, and its interval; return 1 where it was not."""
    bench = Bench.at(scratch / "truth", seconds, MODULE.format(seconds=AFTER / 1000.0))
    print(f"\nSpins of {BEFORE:.2f} ms against {AFTER:.2f} ms, {given.fail_if}: their ratio is {BEFORE / AFTER:.4f}.")
    print("A step holds the loop's own work too, so the ratio of whole steps lies between that and 1.\n")
    print("| gate | blocks | ratio | interval | verdict | seconds |\n|---|---|---|---|---|---|")
    missed = 0
    for number in range(given.truths):
        answer, took = gate(bench, f"truth-{number}", given)
        (row,) = answer["rows"]
        ratio = row["ratio"] or {"value": float("nan"), "low": None, "high": None}
        ends = "none" if ratio["low"] is None else f"[{ratio['low']:.4f}, {ratio['high']:.4f}]"
        cells = (answer["gate"], row["blocks"], f"{ratio['value']:.4f}", ends, row["verdict"], f"{took:.0f}")
        print(f"| {' | '.join(map(str, cells))} |")
        missed += answer["gate"] != "regression"
    return int(missed > 0)


def commented() -> str:
    """Return the module of the first commit with another comment."""
    return f"{MODULE.format(seconds=BEFORE / 1000.0)}# nothing else changed\n"


def gate(bench: Bench, name: str, given: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """Run a gate on the last two commits; return its answer and its seconds."""
    started = time.perf_counter()
    words = ("ab", "HEAD~1", "HEAD", "experiment=timed", "--name", name, "--fail-if", given.fail_if, *GATE)
    done = bench.accelsweep(*words, codes=(0, 1, 3))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, time.perf_counter() - started


PARTS: dict[str, Callable[[Path, float, argparse.Namespace], int]] = {
    "overhead": overhead,
    "gates": gates,
    "truth": truth,
}


def main() -> int:
    """Run the parts that were asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one; may be given again")
    parser.add_argument("--gates", type=int, default=40)
    parser.add_argument("--truths", type=int, default=3)
    parser.add_argument("--fail-if", default="slower:2%", help="of the gates; tells 3 %% from it where it is less")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", type=int, default=6, help="of the overhead's sweeps, in each version")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each timed window")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ACCELSWEEP_LEASES"] = str(Path(scratch) / "leases")
        return max(PARTS[name](Path(scratch), given.seconds, given) for name in given.part or PARTS)


if __name__ == "__main__":
    sys.exit(main())

"""A week in hours: thousands of tiny runs in one sweep, while driver, executor and publisher are killed in turn.

    python benchmarks/soak.py [--runs 10000] [--kill-seconds 240] [--out docs/evidence/soak-DATE] [--home HOME]

There are as many settings as blocks. Each kill is a SIGKILL, and the same command resumes after the driver has ended.
Samples of the memory of all three processes go to `curves.csv`, and what is judged goes to `results.md`. That is the
slope of their memory, the time of a run at the beginning and at the end, time and memory of the report, and whether
MLflow has every run. Returns 1 if an aim is missed. Seconds stretch on a busy machine.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record

ROLES = ("driver", "publisher", "executor")
SAMPLE_SECONDS = 5.0
AIMS = {"MiB per 1000 runs": 20.0, "pace": 1.1, "report seconds": 30.0, "report MiB": 1.5 * 1024}
TINY = (
    "experiment=quickstart", "accelerator=cpu", "devices=1", "threads=1", "precision=32-true", "model=mlp", "loop=raw",
    "baseline={batch_size:8}", "block.baseline_runs=1", "measure.warmup_steps=2", "measure.min_steps=5",
    "measure.max_steps=10", "measure.min_seconds=0.0", "measure.quality_samples=null", "measure.probe_steps=null",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """Seconds since the beginning, runs that are recorded, and MiB of each process with its id, where it lives."""

    seconds: float
    runs: int
    held: dict[str, tuple[int, float]]


@dataclass
class Soak:
    """The sweep, its command and what was seen of it."""

    home: Path
    command: list[str]
    kill_seconds: float
    samples: list[Sample] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    @property
    def folder(self) -> SweepFolder:
        """The sweep's folder."""
        return SweepFolder(self.home, "soak")

    def processes(self, driver: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
        """Return the living process of each role."""
        found = {"driver": psutil.Process(driver.pid)}
        for child in found["driver"].children():
            if child.status() != psutil.STATUS_ZOMBIE and "accelsweep.tracking.live_publishing" in child.cmdline():
                found["publisher"] = child
        holds = filter(None, map(live_lock, self.folder.locks()))
        found.update(("executor", psutil.Process(hold.pid)) for hold in holds)
        return found

    def run(self) -> None:
        """Give the command again until it ends by itself with everything measured."""
        begin, kill_at = time.monotonic(), self.kill_seconds
        with open(self.home / "soak.log", "ab") as log:
            while not self.codes or self.codes[-1] != 0:
                driver = subprocess.Popen(self.command, cwd=self.home, stdout=log, stderr=log, start_new_session=True)
                while driver.poll() is None:
                    time.sleep(SAMPLE_SECONDS)
                    now = time.monotonic() - begin
                    try:
                        living = self.processes(driver)
                        self.sample(now, living)
                    except psutil.Error:
                        continue  # it ended between two looks
                    victim = ROLES[len(self.kills) % len(ROLES)]
                    if now > kill_at and victim in living:  # each in turn, whenever it is there to be killed
                        living[victim].send_signal(signal.SIGKILL)
                        self.kills.append((now, victim))
                        kill_at = now + self.kill_seconds
                self.codes.append(driver.wait())
                if len(self.codes) > 10 + 2 * len(self.kills):
                    raise SystemExit(f"the command ended with {self.codes[-5:]}; see {self.home / 'soak.log'}")

    def sample(self, now: float, living: dict[str, psutil.Process]) -> None:
        """Note what the living processes hold."""
        runs = sum(1 for _ in self.folder.root.glob("runs/*/record.json"))
        held = {role: (process.pid, process.memory_info().rss / 2**20) for role, process in living.items()}
        self.samples.append(Sample(now, runs, held))

    def slope(self, role: str) -> float | None:
        """Return by how many MiB a process of this role grew per 1000 runs: that of the one that saw most runs.

        Its first quarter is left out, in which it loads. An executor is a process for each block.
        """
        seen: dict[int, list[tuple[int, float]]] = {}
        for sample in self.samples:
            if role in sample.held:
                pid, mib = sample.held[role]
                seen.setdefault(pid, []).append((sample.runs, mib))
        points = max(seen.values(), key=lambda each: each[-1][0] - each[0][0], default=[])
        points = points[len(points) // 4 :]
        if len({runs for runs, _ in points}) < 3:
            return None
        return 1000 * statistics.linear_regression(*zip(*points, strict=True)).slope

    def between_executors(self) -> float | None:
        """Return by how many MiB executors grow per 1000 runs of the sweep: their largest memory, block by block."""
        largest: dict[int, tuple[int, float]] = {}
        for sample in self.samples:
            if "executor" in sample.held:
                pid, mib = sample.held["executor"]
                largest[pid] = (sample.runs, max(mib, largest.get(pid, (0, 0.0))[1]))
        if len(largest) < 3:
            return None
        return 1000 * statistics.linear_regression(*zip(*largest.values(), strict=True)).slope


def run_seconds(folder: SweepFolder) -> tuple[float, float]:
    """Return the time from one run's start to the next in the first fifth of the blocks, and in the last.

    That of a block is the median, that of a fifth the smallest of its blocks: what else the machine does only adds to
    it, while a sweep that slows down by itself slows all blocks.
    """
    manifest = Manifest.read(folder.manifest)
    fifth = max(1, len(manifest.blocks) // 5)
    records = [Record.read(path) for path in folder.latest_records()]
    starts: dict[str, list[datetime]] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        starts.setdefault(record.block, []).append(datetime.fromisoformat(record.started_at))
    medians = [
        statistics.median((after - before).total_seconds() for before, after in itertools.pairwise(each))
        for each in sorted(starts.values())
        if len(each) > 1
    ]
    return min(medians[:fifth]), min(medians[-fifth:])


def report(home: Path) -> tuple[float, float]:
    """Make the report in a process of its own; return its seconds and its MiB."""
    begin = time.monotonic()
    made = subprocess.Popen([sys.executable, "-m", "accelsweep", "report", "soak"], cwd=home, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(made.pid, 0)
    if status:
        raise SystemExit("the report failed")
    return time.monotonic() - begin, used.ru_maxrss / 1024


def published(home: Path) -> int:
    """Return how many repeats MLflow's database holds as finished."""
    query = (
        "SELECT count(*) FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid WHERE tags.key = 'mlflow.parentRunId' "
        "AND runs.lifecycle_stage = 'active' AND runs.status = 'FINISHED'"
    )
    with sqlite3.connect(home / "mlflow.db") as database:
        return int(database.execute(query).fetchone()[0])


def judged(soak: Soak) -> list[tuple[str, str, str, bool | None]]:
    """Return what was looked at, what was seen, the aim, and whether it is met; None where it was not measured."""
    wanted = len(Manifest.read(soak.folder.manifest).wanted_runs())
    records = len(soak.folder.latest_records())
    before, after = run_seconds(soak.folder)
    seconds, mib = report(soak.home)
    copies = published(soak.home)
    slopes = {f"{role}, one process": soak.slope(role) for role in ROLES}
    slopes["executors, from block to block"] = soak.between_executors()
    aim = AIMS["MiB per 1000 runs"]
    return [
        ("runs recorded", str(records), str(wanted), records == wanted),
        ("runs in MLflow", str(copies), str(wanted), copies == wanted),
        *(
            (f"memory of the {name}, per 1000 runs", "too few samples", f"< {aim:.0f} MiB", None)
            if slope is None
            else (f"memory of the {name}, per 1000 runs", f"{slope:+.1f} MiB", f"< {aim:.0f} MiB", slope < aim)
            for name, slope in slopes.items()
        ),
        (
            "a run at the end", f"{after:.2f} s, {before:.2f} s at the beginning", "at most 10 % more",
            after <= AIMS["pace"] * before,
        ),
        (
            "time of the report", f"{seconds:.1f} s", f"{AIMS['report seconds']:.0f} s",
            seconds <= AIMS["report seconds"],
        ),
        ("memory of the report", f"{mib:.0f} MiB", f"{AIMS['report MiB']:.0f} MiB", mib <= AIMS["report MiB"]),
    ]  # fmt: skip


def write(soak: Soak, out: Path) -> bool:
    """Write the curves and what was judged below `out`, print the latter, and return whether all aims are met.

    An aim that was not measured is not met.
    """
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "curves.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["seconds", "runs", *(f"{role}_{what}" for role in ROLES for what in ("pid", "mib"))])
        for one in soak.samples:
            held = [one.held.get(role, ("", "")) for role in ROLES]
            table.writerow([f"{one.seconds:.0f}", one.runs, *(each for pair in held for each in pair)])
    rows = judged(soak)
    words = {True: "yes", False: "NO", None: "not measured"}
    killed = ", ".join(f"{role} after {seconds:.0f} s" for seconds, role in soak.kills) or "nothing"
    lines = [
        "# A soak", "", f"{datetime.now(UTC):%Y-%m-%d}, {soak.samples[-1].seconds:.0f} s. The command ended with "
        f"{', '.join(map(str, soak.codes))}. Killed: {killed}.", "",
        "| what | seen | aim | met |", "|---|---|---|---|",
        *(f"| {what} | {seen} | {aim} | {words[met]} |" for what, seen, aim, met in rows),
    ]  # fmt: skip
    (out / "results.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[2:]))
    print(f"curves: {out / 'curves.csv'}")
    return all(met for *_, met in rows)


def main() -> int:
    """Soak, judge and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--kill-seconds", type=float, default=240.0)
    parser.add_argument("--out", type=Path, default=Path(f"docs/evidence/soak-{datetime.now(UTC):%Y-%m-%d}"))
    parser.add_argument("--home", type=Path, help="where to work; a temporary folder by default")
    given = parser.parse_args()
    side = max(2, round(given.runs**0.5))
    axes = [f"batch_size=range(8,{8 + -(-side // 2)})", "model.width=4,8"]
    command = [
        sys.executable,
        "-m",
        "accelsweep",
        "run",
        *TINY,
        *axes,
        f"repeats={-(-given.runs // (2 * -(-side // 2)))}",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        home = (given.home or Path(scratch)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        soak = Soak(home, [*command, "--name", "soak"], given.kill_seconds)
        soak.run()
        return 0 if write(soak, given.out) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The cost of Slurm jobs: blocks against one job per run, and our Snakefile against an empty one.

    python benchmarks/slurm.py [--settings 15] [--repeats 4] [--starts 15] [--only jobs|start]

Starts the test cluster (tests/slurm/cluster.sh: root, Debian's Slurm; two virtual nodes share this machine's cores).
Then runs the same sweep of tiny runs twice, from the command to the report, with the shipped Slurm profile. The first
time it runs in four randomised blocks, which fill the two nodes twice, the second time with `block.size=1`. Then times
`snakemake --list-rules` with our Snakefile on that sweep and with an empty one, in turn: the median of the differences.
Each job starts two Snakemakes. Exit code 1 if an aim is missed: five times less wall time, 0.3 s.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from accelsweep.devices.linux import allowed_cores
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record

REPOSITORY = Path(__file__).resolve().parents[1]
CLUSTER = REPOSITORY / "tests" / "slurm" / "cluster.sh"
AIM_RATIO, AIM_SECONDS = 5.0, 0.3

EXPERIMENT = """\
# @package _global_
accelerator: cpu
threads: 1
measure: {warmup_steps: 3, min_steps: 10, max_steps: 1000, min_seconds: 0.05, quality_samples: null, probe_steps: 1}
"""

SITE = CLUSTER.with_name("site.yaml")


def sweep(home: Path, name: str, *overrides: str) -> float:
    """Run a sweep on the cluster to its report; return the wall seconds. Raises where a run was not measured."""
    command = [sys.executable, "-m", "accelsweep", "run", "experiment=tiny", "site=box", "--profile", "slurm"]
    begin = time.perf_counter()
    subprocess.run([*command, "--name", name, *overrides], cwd=home, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    folder = SweepFolder(home, name)
    manifest = Manifest.read(folder.manifest)
    records = [Record.read(folder.record(run)) for run in manifest.wanted_runs()]
    if any(record.outcome != "measured" for record in records):
        raise SystemExit(f"{name}: {[record.reason for record in records if record.reason][:3]}")
    measured = sum(record.wall_seconds for record in records)
    print(
        f"{name}: {len(records)} runs in {len(manifest.blocks)} jobs, {seconds:.0f} s from the command to the report "
        f"({measured:.0f} s of them inside runs)",
        flush=True,
    )
    return seconds


def compare_jobs(home: Path, settings: int, repeats: int) -> bool:
    """Run the sweep both ways; return whether blocks reach the aim."""
    grid = [f"batch_size={','.join(str(16 + step) for step in range(settings))}", f"repeats={repeats}"]
    blocks = sweep(home, "blocks", *grid)
    each = sweep(home, "one-job-per-run", *grid, "block.size=1")
    print(
        f"one job per run / blocks: {each / blocks:.1f} times the wall time (aim: at least {AIM_RATIO:g})", flush=True
    )
    return each >= AIM_RATIO * blocks


def start(home: Path, snakefile: Path, *config: str) -> tuple[float, float]:
    """Return the wall and the processor seconds that a Snakemake takes to read a Snakefile and list its rules."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--list-rules", *config]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=home, check=True, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_starts(home: Path, starts: int) -> bool:
    """Time Snakemake with our Snakefile and with an empty one in turn; return whether the difference is small."""
    empty = home / "Snakefile"
    empty.write_text("rule all:\n    localrule: True\n")
    alone, ours = [], []
    for _ in range(starts):
        alone.append(start(home, empty))
        ours.append(start(home, REPOSITORY / "Snakefile", "--config", "sweep=sweeps/blocks"))
    middles = []
    for part, what in enumerate(("wall", "processor")):
        added = [one[part] - other[part] for one, other in zip(ours, alone, strict=True)]
        low, middle, high = statistics.quantiles(added, n=4)
        middles.append(middle)
        print(
            f"our Snakefile adds {middle:.2f} {what} seconds (middle half: {low:.2f} to {high:.2f}, {starts} pairs) to "
            f"the {statistics.median(one[part] for one in alone):.2f} of a Snakemake (aim: at most {AIM_SECONDS})",
            flush=True,
        )
    return middles[0] <= AIM_SECONDS


def prepare(home: Path) -> None:
    """Write the experiment and the site, and plan a sweep for the second part."""
    for name, text in {"experiment/tiny.yaml": EXPERIMENT, "site/box.yaml": SITE.read_text("utf-8")}.items():
        file = home / "conf" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)


def plan_alone(home: Path, settings: int, repeats: int) -> None:
    """Write the plan of the sweep without running it."""
    from accelsweep.planning.plan import make_plan, write_plan

    grid = [f"batch_size={','.join(str(16 + step) for step in range(settings))}", f"repeats={repeats}"]
    write_plan(home, make_plan(home, ["experiment=tiny", "site=box", *grid], name="blocks"))


def main() -> int:
    """Do both parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--starts", type=int, default=15, help="how often each is timed; two at least")
    parser.add_argument("--only", choices=("jobs", "start"))
    arguments = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch).resolve()
        prepare(home)
        if arguments.only != "start":
            subprocess.run([CLUSTER, "up"], check=True)
            try:
                good = compare_jobs(home, arguments.settings, arguments.repeats)
            finally:
                subprocess.run([CLUSTER, "down"], check=True)
        else:
            plan_alone(home, arguments.settings, arguments.repeats)
        if arguments.only != "jobs":
            good = compare_starts(home, arguments.starts) and good
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f} on {len(allowed_cores())} cores")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

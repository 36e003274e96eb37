"""How plan, a command with nothing to do, report and publish grow with the number of settings: seconds and memory.

    python benchmarks/growth.py [--sizes 10,100,1000,10000] [--repeats 3] [--publish-up-to 10000] [--write]

Each figure is that of a whole command in a process of its own: `accelsweep plan`, `report`, `publish` (into a SQLite
file that exists already), and `accelsweep run` again once every run is settled and published. Nothing is measured: the
sweep is planned, and the records of its runs are copies of the committed example's, as in report.py, with the
fingerprint that this machine has now. MiB is the largest resident size of any of the command's processes. A slope is
that of the logarithms, from one size to the next: 1 is linear growth. `--write` puts the page and its picture into
docs/evidence.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from generated_block import fill
from report import EXAMPLE, record_of, steps_file

from accelsweep.devices.cpu import cpu_model
from accelsweep.devices.linux import usable_cores
from accelsweep.driver.up_to_date import mark_up_to_date
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.files import sha256_file
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Done, Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.significant_digits import count_of
from accelsweep.tracking.published_state import PublishedCopy, remember_copy, run_digests
from accelsweep.tracking.snapshot import report_digest
from accelsweep.tracking.store_uri import resolve_uri, sqlite_path

EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"
NAME = "growth"
PARTS = ("plan", "report", "publish", "no-op")
NOTHING_LEFT = "nothing is left to measure"


def grid(settings: int, repeats: int) -> list[str]:
    """Return overrides of that many settings: 10, 100, 1000, 10000, or 10 times another product of such factors."""
    left, axes = settings // 10, ["precision=32-true,bf16-mixed", "batch_size=16,32,64,128,256"]
    for key, step in (("model.width", 8), ("optimizer.lr", 0.01)):
        count = min(left, 10)
        axes.append(f"{key}={','.join(f'{step * number:g}' for number in range(1, count + 1))}")
        left //= count
    axes.append(f"optimizer.weight_decay={','.join(f'{number / 1000:g}' for number in range(left))}")
    return ["accelerator=cpu", "devices=1", "model=small_cnn", "data=digits", f"repeats={repeats}", *axes]


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    mib: float


def measured(home: Path, *arguments: str) -> tuple[Cost, str]:
    """Run a command of accelsweep to its end; return its cost and its output. Exits if it fails."""
    command = [sys.executable, "-m", "accelsweep", *arguments]
    with (home / "output").open("w+", encoding="utf-8") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=home, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said[-4000:]}")
    cost = Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
    print(arguments[0], cost, file=sys.stderr, flush=True)
    return cost, said


def settle(home: Path, overrides: Sequence[str]) -> int:
    """Write the plan, and for each of its runs a record as this machine would leave it now; return the settings."""
    plan = make_plan(home, list(overrides), name=NAME)
    folder = write_plan(home, plan)
    conditions, dice = CurrentConditions(folder), random.Random(0)
    examples = map(Record.read, sorted(EXAMPLE.glob("runs/*/record.json")))
    template = next(record for record in examples if record.outcome is Outcome.measured)
    steps, start = steps_file(), datetime(2026, 1, 5, tzinfo=UTC)
    for block in plan.new_blocks:
        records = {}
        for position, run in enumerate(block.runs):
            config, axes = block.configs[run.setting], block.axes[run.setting]
            values = {"devices": 1, "model.width": 32, **axes}
            shown = {key: values[key] for key in ("devices", "precision", "batch_size", "model.width")}
            folder.run(run.name).mkdir(parents=True)
            folder.steps(run.name).write_bytes(steps)
            record = record_of(template, block.name, run, position, shown, start, dice).model_copy(
                update={
                    "sweep": NAME,
                    "axes": axes,
                    "config": config,
                    "fingerprint": conditions.fingerprint(config),
                    "steps_sha256": sha256_file(folder.steps(run.name)),
                }
            )
            record.write(folder.record(run.name))
            records[run.name] = sha256_file(folder.record(run.name))
            start += timedelta(seconds=8)
        Done(block=block.name, records=records).write(folder.done(block.name))
    return len(plan.settings)


def make_store(home: Path) -> None:
    """Create an empty MLflow store where `accelsweep publish` looks for one."""
    from accelsweep.tracking.store import create_database  # sets variables of MLflow, which commands would inherit

    create_database(resolve_uri(home, None), home)


def stand_in_copy(home: Path) -> None:
    """Write what publishing would have left, as far as a command with nothing to do looks at it: runs without data."""
    make_store(home)
    folder, uri = SweepFolder(home, NAME), resolve_uri(home, None)
    manifest, experiment = Manifest.read(folder.manifest), 1
    records = {run: sha256_file(folder.record(run)) for run in manifest.wanted_runs()}
    count = 1 + len(manifest.settings) + len(records)  # the report, and a parent for the runs of each setting
    with contextlib.closing(sqlite3.connect(str(sqlite_path(uri)))) as store, store:
        name = "insert into experiments (experiment_id, name, lifecycle_stage, workspace) values (?, ?, 'active', '')"
        store.execute(name, (experiment, NAME))
        runs = ((f"{number:032x}", experiment) for number in range(count))
        store.executemany("insert into runs (run_uuid, experiment_id, lifecycle_stage) values (?, ?, 'active')", runs)
    published = PublishedCopy(
        experiment_id=str(experiment),
        active_runs=count,
        records=run_digests(manifest, records),
        report=report_digest(folder),
    )
    remember_copy(folder, uri, published)


def costs(settings: int, repeats: int, *, published: bool) -> dict[str, Cost]:
    """Return the cost of each part for that many settings."""
    found, overrides = dict[str, Cost](), grid(settings, repeats)
    with tempfile.TemporaryDirectory(prefix="growth-") as temporary:
        home = Path(temporary)
        folder = SweepFolder(home, NAME)
        found["plan"], _ = measured(home, "plan", *overrides, "--name", NAME)
        in_own_process(settle, home, overrides)
        found["report"], _ = measured(home, "report", NAME)
        if published:
            in_own_process(make_store, home)
            found["publish"], _ = measured(home, "publish", NAME)
        else:
            in_own_process(stand_in_copy, home)
        in_own_process(mark_up_to_date, folder)
        found["no-op"], said = measured(home, "run", *overrides, "--name", NAME)
        if NOTHING_LEFT not in said or folder.snakemake_log.exists():
            raise SystemExit(f"there was something left to do for {settings} settings:\n{said[-4000:]}")
    return found


def in_own_process(what: Callable[..., object], *arguments: object) -> None:
    """Do something in a new process, whose memory this one does not keep. Exits if it fails."""
    process = multiprocessing.get_context("spawn").Process(target=what, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{what.__name__} ended with {process.exitcode}")


def slope(before: float, after: float, sizes: tuple[int, int]) -> float:
    """Return the slope between two sizes, on logarithmic axes."""
    return math.log(after / before) / math.log(sizes[1] / sizes[0])


def rows(found: dict[int, dict[str, Cost]]) -> list[str]:
    """Return the table: a line for each part and size."""
    lines = [
        "| command | settings | seconds | CPU seconds | MiB | slope of CPU seconds | slope of MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in PARTS:
        sizes = [size for size, costs in found.items() if part in costs]
        for before, size in zip([None, *sizes], sizes, strict=False):
            cost, slopes = found[size][part], "| |"
            if before is not None:
                last, pair = found[before][part], (before, size)
                slopes = (
                    f"{slope(last.cpu_seconds, cost.cpu_seconds, pair):.2f} | {slope(last.mib, cost.mib, pair):.2f} |"
                )
            lines.append(
                f"| {part} | {size:,} | {cost.seconds:.1f} | {cost.cpu_seconds:.1f} | {cost.mib:.0f} | {slopes}"
            )
        lines += [f"| {part} | {size:,} | not measured | | | | |" for size in found if size not in sizes]
    return lines


def draw(found: dict[int, dict[str, Cost]], path: Path) -> None:
    """Draw CPU seconds and memory over the number of settings, on logarithmic axes, as an SVG file."""
    from matplotlib import rc_context  # comes with MLflow
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (key, title) in zip(
        figure.subplots(1, 2), {"cpu_seconds": "CPU seconds", "mib": "MiB"}.items(), strict=True
    ):
        for part in PARTS:
            sizes = [size for size, costs in found.items() if part in costs]
            axes.plot(sizes, [getattr(found[size][part], key) for size in sizes], marker="o", label=part)
        axes.set(xscale="log", yscale="log", xlabel="settings", ylabel=title)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(which="both", alpha=0.25)
    axes.legend()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(path)


def page(found: dict[int, dict[str, Cost]], repeats: int, picture: str) -> str:
    """Return the page of the evidence; `picture` is the name of the drawing beside it."""
    unpublished = [size for size, costs in found.items() if "publish" not in costs]
    stand_in = ""
    if unpublished:
        stand_in = f" With {min(unpublished):,} settings or more, nothing was published: the copy in MLflow that the "
        stand_in += "no-op finds is a stand-in, with as many runs but no data in them."
    lines = [
        "# Growth with the number of settings",
        "",
        f"`python benchmarks/growth.py --write` wrote this page on {datetime.now(UTC):%Y-%m-%d}, on {cpu_model()} "
        f"({usable_cores()} threads).",
        "",
        f"Each setting has {count_of(repeats, 'repeat')} of 200 steps. A line is one whole command in a process of its "
        "own, imports included. MiB is the largest resident size of any of its processes. A slope "
        "is that from the size before, on logarithmic axes: 1 is linear growth, and what does not depend on the size, "
        "such as imports, lowers it.",
        "",
        f"![CPU seconds and memory of each command over the number of settings]({picture})",
        "",
        *rows(found),
        "",
        "* plan: `accelsweep plan`, printed. report: `accelsweep report`, which collects and analyses first. publish: "
        "`accelsweep publish` into an empty SQLite store. no-op: the same `accelsweep run` again, with every run "
        "settled and published.",
        "* Nothing was measured: the records are copies of the committed example's." + stand_in,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure each size, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,100,1000,10000", help="numbers of settings")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--publish-up-to", type=int, default=10_000, help="larger sizes are not published")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {}
    for size in map(int, options.sizes.split(",")):
        print(f"{size} settings", file=sys.stderr, flush=True)
        found[size] = costs(size, options.repeats, published=size <= options.publish_up_to)
    name = f"growth-{datetime.now(UTC):%Y-%m-%d}"
    text = page(found, options.repeats, f"{name}.svg")
    if options.write:
        draw(found, EVIDENCE / f"{name}.svg")
        (EVIDENCE / f"{name}.md").write_text(text, "utf-8")
        fill(EVIDENCE / "README.md", "growth", f"[Results]({name}.md).")
    print(text, end="")


if __name__ == "__main__":
    main()

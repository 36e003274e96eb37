"""The cost of the last steps for a large sweep: collect, analyse and report of 10 000 runs of 200 steps.

    python benchmarks/report.py [--settings 1000] [--repeats 10] [--keep HOME] [--json]
    python benchmarks/report.py --growth [10 100 1000 10000]

The sweep is written first, by a process of its own. Its records are copies of the quickstart's committed record, with
other axes and rates, and 200 steps beside each. Every setting at the far corner of the grid has a run out of memory.
Then each part is timed, its imports included. The process's largest memory and the page's size are printed beside the
aims. Processor time tells how far a busy machine stretched the seconds. `--keep` writes the sweep below HOME and keeps
it there, so that the page can be looked at. `--json` prints the figures on one line of JSON instead.
`--growth` measures sweeps of several sizes, each in a process of its own, and prints with what power of the number of
runs each figure grows: the slope of the line through the logarithms, 1 if it is proportional.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import multiprocessing
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from accelsweep.config.schema import checked_config
from accelsweep.config.setting import setting_name
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.garbage_collection import collect_rarely
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest, PlannedBlock, PlannedSetting
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

EXAMPLE = Path(__file__).resolve().parents[1] / "reports" / "examples" / "quickstart" / "sweeps" / "quickstart"
AXES = ("devices", "precision", "batch_size", "model.width")
STEPS, WARMUP_STEPS = 200, 20
AIMS = {"seconds": 10.0, "MiB": 500.0, "MB of HTML": 2.5}
SIZES = (10, 100, 1000, 10_000)
NAME = "large"


def grid(settings: int) -> list[dict[str, Any]]:
    """Return the values on the axes of so many settings, in grid order; the first is the baseline."""
    widths = range(1, math.ceil(settings / 40) + 1)
    batches = [8 * 2**power for power in range(10)]
    every = itertools.product((1, 2), ("32-true", "bf16-mixed"), batches, widths)
    return [dict(zip(AXES, values, strict=True)) for values in itertools.islice(every, settings)]


def build(home: Path, settings: int, repeats: int) -> None:
    """Write manifest, records and steps of the sweep; blocks are complete: one repeat of every setting."""
    folder, dice = SweepFolder(home, NAME), random.Random(0)
    template = next(
        record
        for record in map(Record.read, sorted(EXAMPLE.glob("runs/*/record.json")))
        if record.outcome is Outcome.measured
    )
    axes = {setting_name({**template.config.raw, **one}): one for one in grid(settings)}
    blocks = [(f"b{repeat:012d}", [Run.of(setting, repeat, 0) for setting in axes]) for repeat in range(repeats)]
    _manifest(axes, blocks, repeats).write(folder.manifest)
    steps = steps_file()
    for number, (block, runs) in enumerate(blocks):
        dice.shuffle(runs)
        for position, run in enumerate(runs):
            start = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(seconds=8 * (number * settings + position))
            record = record_of(template, block, run, position, axes[run.setting], start, dice)
            record.write(folder.record(run.name))
            folder.steps(run.name).write_bytes(steps)


def _manifest(axes: dict[str, dict[str, Any]], blocks: list[tuple[str, list[Run]]], repeats: int) -> Manifest:
    return Manifest(
        sweep=NAME,
        revision=1,
        experiment="large",
        overrides=("experiment=large",),
        axes=AXES,
        settings=tuple(PlannedSetting(name=setting, axes=one) for setting, one in axes.items()),
        excluded=(),
        baseline=next(iter(axes)),
        blocks=tuple(
            PlannedBlock(name=name, runs=tuple(run.name for run in runs), resources=Resources())
            for name, runs in blocks
        ),
        options=Options(repeats=repeats),
        site=Site(name="local"),
        sources={},
        versions={},
    )


def record_of(
    template: Record, block: str, run: Run, position: int, axes: dict[str, Any], start: datetime, dice: random.Random
) -> Record:
    """Return a copy of the template for another run, whose rate its axes and the dice decide."""
    rate = 900.0 * axes["devices"] ** 0.9 * axes["batch_size"] ** 0.4 / axes["model.width"] ** 0.3
    rate *= math.exp(dice.gauss(0.0, 0.01)) * (0.8 if axes["precision"] == "bf16-mixed" else 1.0)
    changed = {"samples_per_second": rate, "quality": 0.9 + dice.gauss(0.0, 0.01), "host_pss_bytes": 3e8 + 1e6 / rate}
    metrics = dict(template.metrics)
    for name, value in changed.items():
        metrics[name] = Metric(value=value, unit=metrics[name].unit)
    fits = axes["batch_size"] < 4096 or axes["model.width"] < 20
    busy = Doubt(code="busy_cpu", message="other processes kept 0.30 of 2 cores busy", remedy="stop other work")
    return template.model_copy(
        update={
            "sweep": NAME,
            "block": block,
            "run": run.name,
            "setting": run.setting,
            "repeat": run.repeat,
            "seed": run.seed,
            "position": position,
            "axes": axes,
            "config": checked_config({**template.config.raw, **axes}),
            "outcome": Outcome.measured if fits else Outcome.out_of_memory,
            "reason": None if fits else "CPU allocator: cannot allocate 1073741824 bytes",
            "started_at": start.isoformat(timespec="milliseconds"),
            "finished_at": (start + timedelta(seconds=7)).isoformat(timespec="milliseconds"),
            "metrics": metrics if fits else {},
            "doubts": (busy,) if dice.random() < 0.01 else (),
        }
    )


def steps_file() -> bytes:
    """Return the steps.parquet of every run."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    dice = random.Random(1)
    columns = {
        "rank": pa.array([0] * STEPS, pa.int32()),
        "step": list(range(STEPS)),
        "phase": ["warmup"] * WARMUP_STEPS + ["window"] * (STEPS - WARMUP_STEPS),
        "step_seconds": [0.005 * math.exp(dice.gauss(0.0, 0.02)) for _ in range(STEPS)],
        "samples": [32] * STEPS,
        "train_loss": [2.3 / (1 + step / 10) for step in range(STEPS)],
    }
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue())


class Stopwatch:
    """Seconds by the name of the part that took them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the with-block."""
        begin = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begin


def measure(folder: SweepFolder) -> tuple[dict[str, float], Path]:
    """Run the last steps of every sweep; return the seconds of each part and the page."""
    watch = Stopwatch()
    with watch.timed("collect"):
        from accelsweep.analysis.collect import collect

        records = collect(folder)
    with watch.timed("analyse"):
        from accelsweep.analysis.analyse_sweep import analyse

        analyse(records, Manifest.read(folder.manifest)).write(folder.findings)
    del records  # the next step does not have them
    with watch.timed("report"):
        from accelsweep.report.report_files import write_report

        page = write_report(folder)
    return watch.seconds, page


def growth(sizes: Sequence[int]) -> Iterator[str]:
    """Yield a table of the figures for each number of runs, and their slopes."""
    rows = []
    for runs in sizes:
        repeats = 10 if runs >= 100 else 5  # at least two settings
        command = [sys.executable, __file__, f"--settings={runs // repeats}", f"--repeats={repeats}", "--json"]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        rows.append(
            {
                "runs": found["runs"],
                **{f"{part} s": value for part, value in found["seconds"].items()},
                "CPU s": found["cpu_seconds"],
                "MiB": found["peak_mib"],
                "HTML kB": found["bytes"]["html"] / 1e3,
            }
        )
    yield "".join(f"{name:>11}" for name in rows[0])
    yield from ("".join(f"{value:11.4g}" for value in row.values()) for row in rows)
    logs = {name: [math.log(row[name]) for row in rows] for name in rows[0]}
    slopes = [statistics.linear_regression(logs["runs"], values).slope for values in logs.values()]
    yield "".join(f"{slope:11.2f}" for slope in slopes) + "  slope"


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--keep", type=Path, metavar="HOME", help="write the sweep below HOME, and keep it")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--growth", type=int, nargs="*", metavar="RUNS", help="compare sweeps of these sizes")
    options = parser.parse_args()
    collect_rarely()  # as the command does
    if options.growth is not None:
        print("\n".join(growth(options.growth or SIZES)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        home = options.keep or Path(temporary)
        folder = SweepFolder(home, NAME)
        if not folder.manifest.exists():
            builder = multiprocessing.get_context("spawn").Process(
                target=build, args=(home, options.settings, options.repeats)
            )
            builder.start()
            builder.join()
        begin = time.process_time()
        seconds, page = measure(folder)
        cpu_seconds = time.process_time() - begin
        files = {"html": page, "findings": folder.findings, "records": folder.records}
        sizes = {name: path.stat().st_size for name, path in files.items()}
        runs = len(Manifest.read(folder.manifest).wanted_runs())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.json:
        figures = {"runs": runs, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak, "bytes": sizes}
        print(json.dumps(figures))
        return
    parts = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    megabytes = {name: size / 1e6 for name, size in sizes.items()}
    print(f"runs     {runs} of {STEPS} steps")
    print(f"time     {sum(seconds.values()):.1f} s ({parts}), CPU {cpu_seconds:.1f} s, aim {AIMS['seconds']:.0f} s")
    print(f"memory   {peak:.0f} MiB at its largest, aim {AIMS['MiB']:.0f} MiB")
    print(f"HTML     {megabytes['html']:.2f} MB, aim {AIMS['MB of HTML']:g} MB")
    print(f"beside   findings.json {megabytes['findings']:.1f} MB, records.parquet {megabytes['records']:.1f} MB")


if __name__ == "__main__":
    main()

"""The cost of publishing: milliseconds per run into a SQLite file, and into servers with and without passwords.

    python benchmarks/publish.py [--runs 500] [--repeats 3]

Each run has 30 metrics, at least 20 params, two curves of 100 points and four artifacts. The time is that of a whole
`publish()` of finished records into an empty store, divided by the number of runs. The import of mlflow and the
creation of the database are printed apart. So is a publish with nothing left to do. The stores are measured in
turn, so that a busy machine disturbs all; the publisher's CPU time tells how busy. The last lines are ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import pyarrow as pa
import pyarrow.parquet as parquet
from example_sweep import build_example_sweep
from guarded_server import ADMIN, guarded_server

from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.tracking.store import create_database
from accelsweep.tracking.ui import running_server

HTTP = "HTTP"
CHECKED = "HTTP, each password checked"
CACHED = "HTTP, passwords cached for 60 s"

METRICS = 30
POINTS = 100


def build(home: Path, name: str, runs: int) -> SweepFolder:
    """Write a sweep with at least `runs` measured runs of the size that this benchmark states."""
    from accelsweep.records.plan import Manifest
    from accelsweep.run_config import Run

    folder = build_example_sweep(home, name, repeats=-(-runs // 8))
    manifest = Manifest.read(folder.manifest)
    template = next(
        r for r in map(Record.read, folder.root.glob("runs/*/record.json")) if r.outcome is Outcome.measured
    )
    extra = {f"logged.metric_{k}": Metric(value=0.5 + k, unit="1") for k in range(METRICS)}
    metrics = {name: metric for name, metric in template.metrics.items() if metric.value is not None} | extra
    metrics = dict(list(metrics.items())[:METRICS])
    wanted = manifest.wanted_runs()
    for run in wanted:
        setting, repeat = Run.parse(run)
        axes = next(planned.axes for planned in manifest.settings if planned.name == setting)
        changes = {"run": run, "setting": setting, "repeat": repeat, "axes": axes, "metrics": metrics}
        folder.run(run).mkdir(parents=True, exist_ok=True)
        (folder.run(run) / "run.log").write_text("one line\n" * 50, "utf-8")
        template.model_copy(update=changes).write(folder.record(run))
        parquet.write_table(_steps(), folder.steps(run))
    return folder


def _steps() -> pa.Table:
    count = 2 * POINTS
    return pa.table(
        {
            "rank": pa.array([0] * count, pa.int32()),
            "step": list(range(count)),
            "phase": ["window"] * count,
            "step_seconds": [0.01 + 0.0001 * (k % 7) for k in range(count)],
            "samples": [32] * count,
            "train_loss": [2.3 / (1 + k) for k in range(count)],
        }
    )


def seconds_of_publishing(folder: SweepFolder, uri: str) -> tuple[float, float, float, int]:
    """Return the seconds and CPU seconds of a first publish, the seconds of a second one, and the number of runs."""
    from accelsweep.tracking.publisher import publish

    begin, cpu_begin = time.perf_counter(), time.process_time()
    done = publish(folder, uri)
    middle, cpu_seconds = time.perf_counter(), time.process_time() - cpu_begin
    assert publish(folder, uri).written == 0
    return middle - begin, cpu_seconds, time.perf_counter() - middle, done.finished


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    begin = time.perf_counter()
    from accelsweep.tracking import run_writer  # noqa: F401

    print(f"import of mlflow: {time.perf_counter() - begin:.1f} s")
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as servers:
        home = Path(temporary)
        folder = build(home, "bench", options.runs)
        begin = time.perf_counter()
        create_database(f"sqlite:///{home / 'server.db'}", home)
        print(f"creation of a SQLite store: {time.perf_counter() - begin:.1f} s")
        stores = {HTTP: servers.enter_context(running_server(home, f"sqlite:///{home / 'server.db'}")).address}
        for name, seconds in ((CHECKED, 0), (CACHED, 60)):
            (home / f"guarded-{seconds}").mkdir()
            stores[name] = servers.enter_context(guarded_server(home / f"guarded-{seconds}", cache_seconds=seconds))
        os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = ADMIN
        _compare(folder, stores, options.repeats)


def _compare(folder: SweepFolder, servers: dict[str, str], repeats: int) -> None:
    times: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in ("SQLite", *servers)}
    for repeat in range(repeats):
        database = f"sqlite:///{folder.home / f'local-{repeat}.db'}"
        create_database(database, folder.home)
        times["SQLite"].append(seconds_of_publishing(folder, database))
        again = SweepFolder(folder.home, f"{folder.name}-{repeat}")
        shutil.copytree(folder.root, again.root, dirs_exist_ok=True)
        for name, address in servers.items():
            times[name].append(seconds_of_publishing(again, address))
    for store, measured in times.items():
        first = sorted(1000 * seconds / count for seconds, _, _, count in measured)
        cpu = statistics.median(1000 * seconds / count for _, seconds, _, count in measured)
        idle = statistics.median(seconds for _, _, seconds, _ in measured)
        print(
            f"{store}: {statistics.median(first):.1f} ms per run ({first[0]:.1f} to {first[-1]:.1f} in {repeats}; "
            f"CPU {cpu:.1f} ms), {measured[0][3]} runs; nothing to do: {idle:.2f} s in all"
        )
    for store in (CHECKED, CACHED):  # within one turn, which is disturbed alike
        ratios = sorted(one[0] / other[0] for one, other in zip(times[store], times[HTTP], strict=True))
        print(f"{store} against {HTTP}: {statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()

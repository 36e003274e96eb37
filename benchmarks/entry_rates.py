r"""Compare an entry point's rate with a stopwatch in the project's own loop, taking turns.

    python benchmarks/entry_rates.py PROJECT batch_size=64 precision=32-true --python PYTHON \
        --entry 'python src/train.py' --own 'data.batch_size=64 trainer.max_epochs=100'

`--own` is how the project itself is told the same setting; the overrides are accelsweep's. The stopwatch is
a Lightning callback that reads the clock, after a synchronisation, at the first and last step of the time it watches.
It knows nothing of accelsweep, and the Trainer loses only what accelsweep removes as well: loggers, checkpoints, bars;
and what saves a LightningCLI's config.
Validation between two epochs is not counted.

Other work on a machine only makes a rate lower, so on a busy machine compare the fastest of each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loop_stopwatch import WARMUP_SECONDS, WARMUP_STEPS, finish, synchronised

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def stopwatch(seconds: float, script: list[str]) -> None:
    """Run the script until `seconds` of its training are timed, and print samples per second of this rank."""
    for name in filter(_installed, PACKAGES):
        pl: Any = __import__(name, fromlist=["Trainer"])
        __import__(f"{name}.cli")

        class Stopwatch(pl.Callback):  # type: ignore[misc]
            began = paused = 0.0
            steps = samples = 0
            born = 0.0

            def on_train_start(self, *_: Any) -> None:
                self.born = time.perf_counter()

            def on_train_batch_end(self, *hook: Any) -> None:
                self.steps += 1
                if not self.began:
                    if self.steps >= WARMUP_STEPS and time.perf_counter() - self.born >= WARMUP_SECONDS:
                        self.began = synchronised()
                    return
                self.samples += _samples(hook[3])
                if time.perf_counter() - self.began - self.paused >= seconds:
                    finish(self.samples, synchronised() - self.began - self.paused)

            def on_validation_start(self, *_: Any) -> None:
                self.validating = synchronised()

            def on_validation_end(self, *_: Any) -> None:
                if self.began:
                    self.paused += synchronised() - self.validating

        removed = tuple(
            getattr(pl.callbacks, name) for name in ("Checkpoint", "EarlyStopping", "ModelSummary", "Timer")
        )
        removed += (pl.callbacks.ProgressBar, getattr(pl.cli, "SaveConfigCallback", pl.callbacks.ProgressBar))
        original = pl.Trainer.__init__

        @functools.wraps(original)  # LightningCLI reads the signature
        def init(
            trainer: Any,
            *arguments: Any,
            _original: Any = original,
            _kind: Any = Stopwatch,
            _removed: Any = removed,
            _base: Any = pl.Callback,
            _logger: Any = pl.loggers.logger.DummyLogger,
            **options: Any,
        ) -> None:
            callbacks = options.get("callbacks") or []
            callbacks = [callbacks] if isinstance(callbacks, _base) else list(callbacks)
            options["callbacks"] = [one for one in callbacks if not isinstance(one, _removed)] + [_kind()]
            options |= dict.fromkeys(("enable_progress_bar", "enable_checkpointing"), False)
            options["logger"] = _logger()  # some callbacks need one
            options |= {"enable_model_summary": False, "num_sanity_val_steps": 0, "profiler": None}
            _original(trainer, *arguments, **options)

        pl.Trainer.__init__ = init
    sys.argv = script
    sys.path[0] = str(Path(script[0]).resolve().parent)
    runpy.run_path(script[0], run_name="__main__")


def _installed(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _samples(batch: Any) -> int:
    while not hasattr(batch, "shape"):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return int(batch.shape[0])


def by_stopwatch(project: Path, python: str, entry: list[str], own: list[str], seconds: float) -> float:
    """Return samples per second of the project's own loop."""
    return printed_rate([python, str(Path(__file__).resolve()), "--stopwatch", str(seconds), *entry[1:], *own], project)


def printed_rate(command: list[str], project: Path, **environment: str) -> float:
    """Return the samples per second that a stopwatch in the command's process prints."""
    variables = {**os.environ, **environment}
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("stopwatch ")]
    if not found:
        raise SystemExit(f"{shlex.join(command)} was not timed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return float(found[0].split()[1])


def by_accelsweep(
    project: Path, python: str, entry: list[str], overrides: list[str], seconds: float, name: str, **environment: str
) -> dict[str, Any]:
    """Return the metrics of one more run of the same setting, which accelsweep adds to the sweep `name`."""
    runs = project / "sweeps" / name / "runs"
    before = set(runs.glob("*/record.json"))
    command = [sys.executable, "-m", "accelsweep", "run", "--entry", shlex.join([python, *entry[1:]])]
    command += ["--name", name, "repeats=1", f"measure.min_seconds={seconds}", *overrides]
    command += ["--add-repeats", "1"] if before else []
    variables = {**os.environ, **environment}
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    files = list(set(runs.glob("*/record.json")) - before)
    if done.returncode or len(files) != 1:
        raise SystemExit(
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    metrics: dict[str, Any] = json.loads(files[0].read_text("utf-8"))["body"]["metrics"]
    return {metric: one["value"] for metric, one in metrics.items()}


_WITNESS = """
import os, time
def callbacks():
    pl = __import__(os.environ["WITNESS_PACKAGE"], fromlist=["Callback"])
    class Witness(pl.Callback):
        def __init__(self):
            self.file = open(os.environ["WITNESS_FILE"], "w")
        def on_train_batch_end(self, trainer, module, outputs, batch, *_):
            while not hasattr(batch, "shape"):
                batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
            self.file.write(f"{time.perf_counter()} {batch.shape[0]}\\n")
            self.file.flush()
    return Witness()
"""
"""A callback that every Trainer takes from the entry points of installed packages, and that writes down each batch."""


def in_one_run(
    project: Path, python: str, entry: list[str], overrides: list[str], seconds: float, name: str
) -> tuple[float, float]:
    """Return a stopwatch's samples per second, and accelsweep's, of the same steps of one run."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = Path(temporary), Path(temporary) / "batches"
        (folder / "witness.py").write_text(_WITNESS, "utf-8")
        (folder / "witness-1.dist-info").mkdir()
        (folder / "witness-1.dist-info" / "METADATA").write_text("Name: witness\nVersion: 1\n", "utf-8")
        groups = [f"[{package}.callbacks_factory]\nwitness = witness:callbacks\n" for package in PACKAGES]
        (folder / "witness-1.dist-info" / "entry_points.txt").write_text("\n".join(groups), "utf-8")
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        package = next(one for one in PACKAGES if _imports(python, one))
        variables = {"PYTHONPATH": path, "WITNESS_FILE": str(file), "WITNESS_PACKAGE": package}
        metrics = by_accelsweep(project, python, entry, overrides, seconds, name, **variables)
        batches = [tuple(map(float, line.split())) for line in file.read_text("utf-8").splitlines()]
    (begin, _), *window = batches[-int(metrics["window_steps"]) - 1 :]  # nothing follows the window
    return sum(samples for _, samples in window) / (window[-1][0] - begin), float(metrics["samples_per_second"])


def _imports(python: str, package: str) -> bool:
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def main() -> int:
    """Take turns and print the ratios."""
    if sys.argv[1:2] == ["--stopwatch"]:
        stopwatch(float(sys.argv[2]), sys.argv[3:])
        return 1  # the script ended before it was timed
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("--entry", required=True, help="the command without what is set by --own: python train.py ...")
    parser.add_argument("--python", default=sys.executable, help="the project's interpreter")
    parser.add_argument("--own", default="", help="the project's own arguments for the setting")
    parser.add_argument("--seconds", type=float, default=5.0, help="what each of the two times, once")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("overrides", nargs="*", help="accelsweep's overrides for the same setting")
    options = parser.parse_intermixed_args()  # overrides may come before or after the options
    project, entry = options.project.resolve(), shlex.split(options.entry)
    rates, name = list[tuple[float, float]](), f"paired-{time.time_ns()}"
    for _ in range(options.pairs):
        own = by_stopwatch(project, options.python, entry, shlex.split(options.own), options.seconds)
        metrics = by_accelsweep(project, options.python, entry, options.overrides, options.seconds, name)
        ours = metrics["samples_per_second"]
        rates.append((own, ours))
        print(f"stopwatch {own:.1f}  accelsweep {ours:.1f} samples/s  ratio {ours / own:.4f}", flush=True)
    ratios = [ours / own for own, ours in rates]
    fastest = max(ours for _, ours in rates) / max(own for own, _ in rates)
    spread = max(own for own, _ in rates) / min(own for own, _ in rates)
    print(
        f"accelsweep / stopwatch: median {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f}) of "
        f"{len(ratios)} pairs, fastest {fastest:.4f}; the stopwatch's fastest is {spread:.4f} times its slowest"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

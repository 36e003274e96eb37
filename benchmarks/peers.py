"""Sweep one training with accelsweep, a shell loop, Hydra and optimum-benchmark, which take turns on an idle machine.

    python benchmarks/peers.py --peers-venv FOLDER [--rounds 2] [--write] [OVERRIDE ...]

Each tool trains a small CNN on digits for a fixed number of steps, on one thread: 8 settings (batch size and
precision), 5 times each. The first three run the same script, peers/train_digits.py, which notes its steps by itself,
so that training is timed by the same clock. Seconds beyond training are those of the whole command without those
between the first and the last step of each run. Then each tool has 3 minutes for two of the settings, which it measures
alternately as often as it can. The interval of the ratio of their rates is computed by accelsweep's code for all.

FOLDER holds virtual environments for the other tools, which pip creates there: one with nothing but Lightning and
Hydra, and one with optimum-benchmark. Without it, tools that this environment lacks are left out. `--write` puts the
page into docs/evidence and its table into docs/comparison.md. An OVERRIDE is one more of accelsweep's command.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from generated_block import fill
from instruments import versions

from accelsweep.analysis.intervals import Family, log_ratio
from accelsweep.devices.cpu import cpu_model
from accelsweep.devices.linux import usable_cores
from accelsweep.significant_digits import count_of

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
EVIDENCE = ROOT / "docs" / "evidence"
LIGHTNING = ("torch", "lightning", "hydra-core", "scikit-learn")
SAME_VERSIONS = {name: f"{name}=={version(name).partition('+')[0]}" for name in LIGHTNING}
ENVIRONMENTS = {
    "hydra-joblib-launcher": (*SAME_VERSIONS.values(), "hydra-joblib-launcher"),
    "optimum-benchmark": (SAME_VERSIONS["torch"], "optimum-benchmark", "transformers<5", "datasets<5"),
}
RESNET = """
from transformers import AutoModelForImageClassification, ResNetConfig
sizes = dict(num_channels=1, embedding_size=32, hidden_sizes=[32, 64, 128], depths=[1, 1, 1], num_labels=10)
config = ResNetConfig(layer_type="basic", image_size=8, **sizes)
AutoModelForImageClassification.from_config(config).save_pretrained("model")
"""


class Setting(NamedTuple):
    """A point of the grid."""

    batch_size: int
    precision: str


@dataclass(frozen=True)
class Workload:
    """What to sweep: each setting so many times, each run so many steps, of which a quarter is a warm-up."""

    settings: tuple[Setting, ...]
    repeats: int
    steps: int

    @property
    def warmup(self) -> int:
        """The steps before a rate is measured."""
        return self.steps // 4

    @property
    def batches(self) -> str:
        """The values of the batch size, as Hydra takes them."""
        return ",".join(dict.fromkeys(str(setting.batch_size) for setting in self.settings))

    @property
    def precisions(self) -> list[str]:
        """The values of the precision."""
        return list(dict.fromkeys(setting.precision for setting in self.settings))


@dataclass(frozen=True)
class Run:
    """A finished run: seconds in its steps, samples per second after the warm-up, process, and when it ended."""

    setting: Setting
    seed: int
    training_seconds: float
    rate: float
    process: int | None
    ended_at: float


class Noted:
    """A tool that runs the script, whose notes say what it did."""

    def __init__(self, python: str) -> None:
        """`python` is the interpreter of the script."""
        self.python = python

    def prepare(self, home: Path) -> None:
        """Put the script into the folder that the tool works in."""
        for path in PEERS.glob("train_digits*"):
            shutil.copy(path, home)

    def finished(self, home: Path, work: Workload) -> list[Run]:
        """Return the finished runs; of a run that was repeated, the last attempt."""
        runs = dict[tuple[Setting, int], Run]()
        for path in sorted((home / "notes").iterdir(), key=lambda path: path.stat().st_mtime_ns):
            batch_size, precision, seed, process, _ = path.name.split("_")
            times = [float(line) for line in path.read_text("utf-8").splitlines()]
            if len(times) != work.steps + 1:
                continue  # accelsweep's trial, or a run that was ended in the middle
            setting = Setting(int(batch_size), precision)
            rate = setting.batch_size * (work.steps - work.warmup) / (times[-1] - times[work.warmup])
            seconds = times[-1] - times[0]
            runs[setting, int(seed)] = Run(setting, int(seed), seconds, rate, int(process), path.stat().st_mtime)
        return list(runs.values())


class Accelsweep(Noted):
    """accelsweep, in the environment that runs this benchmark. Nothing is measured that the others do not measure."""

    way = "`accelsweep run --entry 'python train_digits.py' ...`, to its report and its copy in MLflow"

    def __init__(self, python: str, overrides: Sequence[str]) -> None:
        """`overrides` are added to the command."""
        super().__init__(python)
        self._overrides = overrides

    def command(self, work: Workload, seconds: float | None) -> list[str]:
        """Return the command; with `seconds`, it starts no run after this time."""
        command = [self.python, "-m", "accelsweep", "run", "--entry", shlex.join([self.python, "train_digits.py"])]
        command += ["--name", "peers", "accelerator=cpu", "devices=1", "threads=1", f"batch_size={work.batches}"]
        command += [f"precision={','.join(work.precisions)}", f"repeats={work.repeats}", "block.baseline_runs=1"]
        command += ["limits.stop_early=false", "measure.quality_samples=null", "measure.probe_steps=null"]
        window = work.steps - work.warmup
        command += [f"measure.warmup_steps={work.warmup}", "measure.min_seconds=0"]
        command += [f"measure.min_steps={window}", f"measure.max_steps={window}", *self._overrides]
        return command if seconds is None else [*command, "--time-budget", f"{seconds:g}s"]


class ShellLoop(Noted):
    """A loop over the script in bash."""

    way = "`for seed ...; do for batch ...; do python train_digits.py ...; done; done`"

    def command(self, work: Workload, _seconds: float | None) -> list[str]:
        """Return the command."""
        script = f"{shlex.quote(self.python)} train_digits.py --steps {work.steps} --seed $seed"
        script += " --batch-size $batch --precision $precision"
        batches, precisions = work.batches.replace(",", " "), " ".join(work.precisions)
        loop = f"for batch in {batches}; do for precision in {precisions}; do {script}; done; done"
        return ["bash", "-ec", f"for seed in $(seq {work.repeats}); do {loop}; done"]


class Hydra(Noted):
    """Hydra's `--multirun` with the joblib launcher: the same script with a Hydra config."""

    way = "`python train_digits_hydra.py --multirun hydra/launcher=joblib hydra.launcher.n_jobs=1 ...`"

    def command(self, work: Workload, _seconds: float | None) -> list[str]:
        """Return the command."""
        options = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=1", f"seed=range(1,{work.repeats + 1})"]
        options += [f"batch_size={work.batches}", f"precision={','.join(work.precisions)}", f"steps={work.steps}"]
        return [self.python, "train_digits_hydra.py", "--multirun", *options]


class OptimumBenchmark:
    """optimum-benchmark's `--multirun`, with a model of transformers, which its Trainer trains on random images."""

    way = "`optimum-benchmark --multirun ...` with its process launcher: a ResNet on random images of the same size"

    def __init__(self, python: str) -> None:
        """`python` belongs to the environment that has it."""
        self.python = python

    def prepare(self, home: Path) -> None:
        """Write the model, whose weights are random; nothing is downloaded."""
        shutil.copy(PEERS / "optimum_digits.yaml", home)
        subprocess.run([self.python, "-c", RESNET], cwd=home, check=True, env=environment(), capture_output=True)

    def command(self, work: Workload, _seconds: float | None) -> list[str]:
        """Return the command; what it calls a seed tells the repeats apart."""
        arguments = "scenario.training_arguments"
        command = [str(Path(self.python).with_name("optimum-benchmark")), "--config-dir", ".", "--multirun"]
        command += [
            "--config-name",
            "optimum_digits",
            "backend.model=${hydra:runtime.cwd}/model",
            "hydra.sweep.dir=out",
        ]
        command += [f"backend.seed=range(1,{work.repeats + 1})", f"scenario.max_steps={work.steps}"]
        command += [f"scenario.warmup_steps={work.warmup}", f"{arguments}.per_device_train_batch_size={work.batches}"]
        is_bf16 = (str(precision == "bf16-mixed").lower() for precision in work.precisions)
        return [*command, f"{arguments}.bf16={','.join(is_bf16)}"]

    def finished(self, home: Path, _work: Workload) -> list[Run]:
        """Return the finished runs: the latencies of their steps, without the time between steps."""
        runs = []
        for path in home.glob("out/*/benchmark_report.json"):
            config = json.loads(path.with_name("benchmark_config.json").read_text("utf-8"))
            report = json.loads(path.read_text("utf-8"))
            arguments = config["scenario"]["training_arguments"]
            batch_size = arguments["per_device_train_batch_size"]
            setting = Setting(batch_size, "bf16-mixed" if arguments["bf16"] else "32-true")
            rate = batch_size / statistics.fmean(report["train"]["latency"]["values"])
            seconds = sum(report["overall"]["latency"]["values"])
            runs.append(Run(setting, config["backend"]["seed"], seconds, rate, None, path.stat().st_mtime))
        return runs


Tool = Accelsweep | ShellLoop | Hydra | OptimumBenchmark


def environment() -> dict[str, str]:
    """Return the variables for a tool: one thread, no hub, and not our own sources, which are no part of a peer."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Swept:
    """What a command did: its seconds and the runs that it finished."""

    seconds: float
    runs: list[Run]


def sweep(tool: Tool, work: Workload, *, within: float | None = None) -> Swept:
    """Run a tool's command in a new folder, to its end, or until so many seconds are over."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        home = Path(folder)
        (home / "notes").mkdir()
        tool.prepare(home)
        variables = environment() | {"STEPS_FOLDER": str(home / "notes")}
        if not isinstance(tool, Accelsweep):
            variables.pop("PYTHONPATH", None)
        command = tool.command(work, within)
        with (home / "output").open("w+", encoding="utf-8") as output:
            started_at, began = time.time(), time.perf_counter()  # the first is compared with the times of files
            process = subprocess.Popen(
                command, cwd=home, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                ends_by_itself = within is None or isinstance(tool, Accelsweep)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(None if ends_by_itself else within)
                seconds = time.perf_counter() - began
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            runs = tool.finished(home, work)
            if within is not None:
                runs = [run for run in runs if run.ended_at - started_at <= within]
            elif code or len(runs) != len(work.settings) * work.repeats:
                output.seek(0)
                said = f"{shlex.join(command)} ended with {code} and {len(runs)} runs"
                raise SystemExit(f"{said}:\n{output.read()[-4000:]}")
        return Swept(seconds, runs)


@dataclass(frozen=True)
class Resolution:
    """How well the ratio of two rates is known: half the width of its interval in percent, and the number of pairs."""

    half_width: float | None
    pairs: int


def resolution_of(runs: Sequence[Run], settings: Sequence[Setting]) -> Resolution:
    """Return how well runs of two settings, paired by their seeds, determine the ratio of the rates."""
    a, b = ({str(run.seed): math.log(run.rate) for run in runs if run.setting == setting} for setting in settings)
    pairs = len(a.keys() & b.keys())
    interval = log_ratio(a, b, Family()) if pairs >= 2 else None
    half_width = interval.half_width if interval is not None else None
    return Resolution(None if half_width is None else 100 * math.expm1(half_width), pairs)


@dataclass(frozen=True)
class Turn:
    """What a tool did in one round."""

    swept: Swept
    resolution: Resolution

    @property
    def beyond(self) -> float:
        """The seconds that were not spent in steps of the runs."""
        return self.swept.seconds - sum(run.training_seconds for run in self.swept.runs)


def installed(peers: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the distributions that an environment has, with its interpreter; create the environments in `peers`."""
    for name, requirements in ENVIRONMENTS.items():
        python = sys.executable
        if peers is not None:
            python = str(peers / name / "bin" / "python")
            if not Path(python).exists():
                subprocess.run([sys.executable, "-m", "venv", str(peers / name)], check=True)
            done = subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=False)
            if done.returncode:
                print(f"{name} cannot be installed here", file=sys.stderr)
        if versions(python, (name,)):
            yield name, python


def spread(values: Sequence[float], digits: int) -> str:
    """Return the median, and from how much to how much, if there are several."""
    text = f"{statistics.median(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def row(name: str, turns: Sequence[Turn], runs: int) -> str:
    """Return a tool's line of the table."""
    if not turns:
        return f"| {name} | not installed | | | | | |"
    processes = {run.process for run in turns[0].swept.runs}
    isolated = "one for each run, not counted" if None in processes else f"{len(processes)} for {runs} runs"
    beyond = [turn.beyond for turn in turns]
    known = [turn.resolution.half_width for turn in turns if turn.resolution.half_width is not None]
    pairs = "/".join(str(turn.resolution.pairs) for turn in turns)
    half = f"± {spread(known, 1)} %" if len(known) == len(turns) else "no interval"
    seconds = spread([turn.swept.seconds for turn in turns], 0)
    per_run = statistics.median(beyond) / runs
    return f"| {name} | {isolated} | {seconds} | {spread(beyond, 0)} | {per_run:.1f} | {half} | {pairs} |"


def table(tools: dict[str, list[Turn]], work: Workload, seconds: float) -> list[str]:
    """Return the table."""
    runs = len(work.settings) * work.repeats
    within = f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
    return [
        "| tool | processes | seconds in all | seconds beyond training | of these per run "
        f"| a ratio after {within} | its pairs |",
        "|---|---|---|---|---|---|---|",
        *(row(name, turns, runs) for name, turns in tools.items()),
    ]


WAYS: dict[str, type[Tool]] = {
    "accelsweep": Accelsweep,
    "shell loop": ShellLoop,
    "Hydra, joblib launcher": Hydra,
    "optimum-benchmark": OptimumBenchmark,
}


def page(
    tools: dict[str, list[Turn]], work: Workload, two: Sequence[Setting], seconds: float, found: dict[str, str]
) -> str:
    """Return the page of the evidence; `two` settings were compared."""
    first, second = two
    rounds = max(map(len, tools.values()))
    lines = [
        "# Sweeping with other tools",
        "",
        f"`python benchmarks/peers.py --write` wrote this page on {datetime.now(UTC):%Y-%m-%d}.",
        "",
        f"{len(work.settings)} settings (batch {work.batches.replace(',', ', ')}; {' and '.join(work.precisions)}), "
        f"{count_of(work.repeats, 'repeat')} of each, {work.steps} steps in each run: a small CNN on scikit-learn's "
        f"digits with Lightning, on one thread of {cpu_model()} ({usable_cores()} threads). The tools took turns in "
        f"{count_of(rounds, 'round')}; with several, a figure is the median, with the least and the most.",
        "",
        f"Python {platform.python_version()}, {', '.join(f'{name} {number}' for name, number in found.items())}.",
        "",
        *table(tools, work, seconds),
        "",
        f"The last columns: batch {first.batch_size} and batch {second.batch_size} ({first.precision}), measured "
        "alternately until the time was over; half the width of the 95 % interval of the ratio of their rates, paired "
        "by repeat and computed by accelsweep's code for all tools. A smaller figure is a more precise answer.",
        "",
        "| tool | command |",
        "|---|---|",
        *(f"| {name} | {kind.way} |" for name, kind in WAYS.items()),
        "",
        "* Training is the time between the beginning of the first step and the end of the last one. The script notes "
        "both, whichever tool runs it. optimum-benchmark reports the latency of each step, so the time between steps "
        "is not counted as training there.",
        "* accelsweep's seconds include a trial of the script, the plan, the report with its figures and the copy in "
        "MLflow. What the others do not measure (accuracy, the breakdown of a step) is switched off, and so is leaving "
        "out settings that are clearly slower. Its runs are in random order within each block; the others' order is "
        "fixed.",
        "* The shell loop and Hydra run the script in an environment with nothing but what it needs. accelsweep runs "
        "it in its own environment, which has more packages to import.",
        "* With `n_jobs=1`, joblib runs all jobs in the process that was started, one after the other: no run has a "
        "process of its own, imports are paid once, and whatever a run leaves behind (memory, threads) stays for the "
        "next. With more jobs, its worker processes are reused, too, and runs would disturb one another.",
        "* optimum-benchmark does not run scripts. It trains the nearest that transformers has: a ResNet with three "
        "stages of the same widths, random images of the same size, Hugging Face's Trainer and AdamW. Its rates cannot "
        "be compared with the others', but its overhead and the precision of a ratio can.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Take turns, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-venv", type=Path, help="the folder for environments of the other tools")
    parser.add_argument("--batches", default="32,64,128,256", help="the first two are compared")
    parser.add_argument("--precisions", default="32-true,bf16-mixed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=180.0, help="for the comparison of two settings")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("overrides", nargs="*", help="of accelsweep's command")
    options = parser.parse_intermixed_args()
    batches, precisions = map(int, options.batches.split(",")), options.precisions.split(",")
    settings = tuple(itertools.starmap(Setting, itertools.product(batches, precisions)))
    work = Workload(settings, options.repeats, options.steps)
    two = tuple(setting for setting in settings if setting.precision == settings[0].precision)[:2]
    compared = Workload(two, max(3, round(options.seconds / 2)), options.steps)
    peers = options.peers_venv.resolve() if options.peers_venv else None
    pythons = dict(installed(peers))
    script = pythons.get("hydra-joblib-launcher")
    tools: dict[str, Tool | None] = {
        "accelsweep": Accelsweep(sys.executable, options.overrides),
        "shell loop": ShellLoop(script or sys.executable),
        "Hydra, joblib launcher": Hydra(script) if script else None,
        "optimum-benchmark": OptimumBenchmark(found) if (found := pythons.get("optimum-benchmark")) else None,
    }
    turns: dict[str, list[Turn]] = {name: [] for name in tools}
    for turn in range(options.rounds):
        for name, tool in tools.items():
            if tool is not None:
                swept = sweep(tool, work)
                ratio = resolution_of(sweep(tool, compared, within=options.seconds).runs, two)
                turns[name].append(Turn(swept, ratio))
                last = turns[name][-1]
                print(
                    f"round {turn + 1}: {name}: {swept.seconds:.1f} s, {last.beyond:.1f} beyond training; {ratio}",
                    file=sys.stderr,
                    flush=True,
                )
    names = (*LIGHTNING, *ENVIRONMENTS, "joblib", "transformers")
    found_versions = versions(sys.executable, ("accelsweep", *LIGHTNING))
    for python in pythons.values():
        found_versions |= {name: one for name, one in versions(python, names).items() if name not in found_versions}
    text = page(turns, work, two, options.seconds, found_versions)
    if options.write:
        name = f"peers-{datetime.now(UTC):%Y-%m-%d}.md"
        (EVIDENCE / name).write_text(text, "utf-8")
        lines = "\n".join(table(turns, work, options.seconds))
        fill(ROOT / "docs" / "comparison.md", "peers", f"{lines}\n\n[How this was measured](evidence/{name})")
        fill(EVIDENCE / "README.md", "peers", f"[Results](peers-{datetime.now(UTC):%Y-%m-%d}.md).")
    print(text, end="")


if __name__ == "__main__":
    main()

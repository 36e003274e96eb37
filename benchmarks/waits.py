r"""Time what people wait for, in this checkout and in an older one that take turns: a table of before and after.

    python benchmarks/waits.py OLDER_CHECKOUT [--pairs 5] [--only first-run,report] [--out docs/evidence/waits.md]

Both checkouts use the interpreter of this process, so their packages are the same; only `set-up` makes virtual
environments of its own, and `slurm-job` starts the test cluster (tests/slurm/cluster.sh: root, Debian's Slurm). Each
wait is that of whole processes. The order within a pair is random. Shown is the median, and the ratio's 95 % interval
over the pairs. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from one_run import interval

from accelsweep.devices.cpu import cpu_model
from accelsweep.devices.linux import usable_cores

HERE = Path(__file__).resolve().parents[1]
CLUSTER = HERE / "tests" / "slurm" / "cluster.sh"

TINY = """\
# @package _global_
accelerator: cpu
threads: 1
batch_size: 16
precision: 32-true
measure: {warmup_steps: 3, min_steps: 10, max_steps: 1000, min_seconds: 0.05, quality_samples: null, probe_steps: 1}
"""

LARGE_GRID = (
    "accelerator=cpu",
    "model=mlp,small_cnn",
    "optimizer=sgd,adamw",
    "precision=32-true,bf16-mixed",
    "batch_size=range(8,208,8)",
    "model.width=range(1,51)",
)

Readings = Mapping[str, float]


@dataclass(frozen=True)
class Checkout:
    """A checkout, and a folder for what its commands write."""

    root: Path
    home: Path

    def python(self, *arguments: str, folder: Path | None = None) -> tuple[str, Readings]:
        """Run Python with this checkout's accelsweep; return what it printed, its seconds and its largest memory."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root / "src"),
            "ACCELSWEEP_LEASES": str(self.home / "leases"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        wrapped = [sys.executable, "-c", _WITH_USAGE, sys.executable, *arguments]
        done = subprocess.run(
            wrapped, cwd=folder or self.home, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{self.root}: {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
        output, _, usage = done.stdout.rstrip().rpartition("\n")
        return output, json.loads(usage)

    def accelsweep(self, *arguments: str, folder: Path | None = None) -> tuple[str, Readings]:
        """Run a command of this checkout's accelsweep."""
        return self.python("-m", "accelsweep", *arguments, folder=folder)


_WITH_USAGE = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
code = subprocess.run(sys.argv[1:]).returncode
seconds = time.perf_counter() - begin
print("\\n" + json.dumps({"s": seconds, "MiB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}))
sys.exit(code)
"""
"""Runs a command, then prints its seconds, and the memory of its largest process, as the last line."""


def set_up(checkout: Checkout) -> Readings:
    """`make package` into a new virtual environment."""
    place = checkout.home / "venv"
    shutil.rmtree(place, ignore_errors=True)
    begin = time.perf_counter()
    command = ["make", "--silent", "package", f"VENV={place}"]
    subprocess.run(command, cwd=checkout.root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"s": time.perf_counter() - begin}


def first_run(checkout: Checkout) -> Readings:
    """A sweep of one run in a new folder: until the run starts, until the command ends, and the files left."""
    with tempfile.TemporaryDirectory(dir=checkout.home) as folder:
        home = Path(folder)
        _write_experiment(home)
        began = datetime.now(UTC)
        _, usage = checkout.accelsweep("run", "experiment=tiny", "repeats=1", folder=home)
        (record,) = home.glob("sweeps/tiny/runs/*/record.json")
        started = re.search(r'"started_at": ?"([^"]+)"', record.read_text("utf-8"))
        assert started is not None
        files = sum(path.is_file() for path in home.rglob("*") if path.name != "tiny.yaml")
        until_run = (datetime.fromisoformat(started[1]) - began).total_seconds()
        return {"s to the start of the run": until_run, "s": usage["s"], "files": files}


def twelve_runs(checkout: Checkout) -> Readings:
    """A sweep of twelve runs in a new folder: the files that it leaves."""
    with tempfile.TemporaryDirectory(dir=checkout.home) as folder:
        home = Path(folder)
        _write_experiment(home)
        checkout.accelsweep(
            "run", "experiment=tiny", "batch_size=16,32,64", "repeats=4", "block.baseline_runs=1", folder=home
        )
        return {"files": sum(path.is_file() for path in home.rglob("*") if path.name != "tiny.yaml")}


def isolated_run(checkout: Checkout) -> Readings:
    """Six isolated runs of a block: what one takes beyond its training, as benchmarks/overhead.py measures it."""
    code = (
        f"import sys; sys.path.insert(0, {str(checkout.root / 'benchmarks')!r})\n"
        "from overhead import Costs, isolated, median\n"
        "costs = Costs(); isolated('fork', 6, costs); print(median(costs.each))"
    )
    return {"s beyond its training": float(checkout.python("-c", code)[0].split()[-1])}


def plan(checkout: Checkout) -> Readings:
    """`accelsweep plan` of 10,000 settings, printed."""
    return checkout.accelsweep("plan", *LARGE_GRID)[1]


def nothing_to_do(checkout: Checkout) -> Readings:
    """The command of a sweep of 45 runs that are all measured."""
    home = checkout.home / "measured"
    command = ("run", "experiment=tiny", "batch_size=16,32,64", "repeats=15", "block.baseline_runs=1")
    if not home.exists():
        home.mkdir()
        _write_experiment(home)
        checkout.accelsweep(*command, folder=home)
    return {"s": checkout.accelsweep(*command, folder=home)[1]["s"]}


def own_environment(checkout: Checkout) -> Readings:
    """A sweep of a training script that has an environment of its own: three blocks of three runs, and once more."""
    environment = checkout.home / "environment"
    if not environment.exists():
        venv.create(environment, with_pip=False, symlinks=True)
        (site,) = environment.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    with tempfile.TemporaryDirectory(dir=checkout.home) as folder:
        home = Path(folder)
        shutil.copy(HERE / "tests" / "projects" / "script" / "train.py", home)
        entry = f"{environment / 'bin' / 'python'} train.py --epochs 1000"
        command = ["run", "batch_size=32,64", "accelerator=cpu", "devices=1", "repeats=3", "measure=quick"]
        command += ["--name", "own", "--entry", entry]
        began = datetime.now(UTC)
        _, usage = checkout.accelsweep(*command, folder=home)
        records = [json.loads(path.read_text("utf-8"))["body"] for path in home.glob("sweeps/own/runs/*/record.json")]
        first = min(datetime.fromisoformat(record["started_at"]) for record in records)
        _, again = checkout.accelsweep(*command, folder=home)
        return {
            "s to the start of the first run": (first - began).total_seconds(),
            "s": usage["s"],
            "s of the same command again": again["s"],
        }


def report(checkout: Checkout) -> Readings:
    """Collect, analyse and report 10,000 runs (benchmarks/report.py), without building them."""
    home = checkout.home / "large"
    script = str(checkout.root / "benchmarks" / "report.py")
    if not home.exists():
        checkout.python(script, "--keep", str(home))
    _, usage = checkout.python(script, "--keep", str(home))
    return {**usage, "MB of HTML": (home / "reports" / "large" / "index.html").stat().st_size / 1e6}


def slurm_job(checkout: Checkout) -> Readings:
    """Two Slurm jobs of one run each, one after the other: how long a job lasts beyond its run, on average."""
    with tempfile.TemporaryDirectory(dir=checkout.home) as folder:
        home = Path(folder)
        _write_experiment(home)
        (site := home / "conf" / "site" / "box.yaml").parent.mkdir()
        shutil.copyfile(CLUSTER.with_name("site.yaml"), site)
        command = ("run", "experiment=tiny", "repeats=2", "site=box", "--profile", "slurm", "--jobs", "1")
        _, usage = checkout.accelsweep(*command, folder=home)
        records = [json.loads(path.read_text("utf-8"))["body"] for path in home.glob("sweeps/tiny/runs/*/record.json")]
        jobs = {record["environment"]["before"]["variables"]["SLURM_JOB_ID"] for record in records}
        seconds = sum(map(_job_seconds, jobs)) - sum(record["wall_seconds"] for record in records)
        return {"s of a job beyond its run": seconds / len(jobs), "s": usage["s"]}


def _job_seconds(number: str) -> float:
    """Return how long a Slurm job ran, from times in whole seconds."""
    told = subprocess.run(["scontrol", "show", "job", number], check=True, capture_output=True, text=True).stdout
    start, end = (datetime.fromisoformat(time) for time in re.findall(r"\b(?:StartTime|EndTime)=(\S+)", told))
    return (end - start).total_seconds()


@contextlib.contextmanager
def slurm_cluster() -> Iterator[None]:
    """Run the test cluster within the block."""
    subprocess.run([CLUSTER, "up"], check=True)
    try:
        yield
    finally:
        subprocess.run([CLUSTER, "down"], check=True)


def _write_experiment(home: Path) -> None:
    folder = home / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text(TINY, "utf-8")


WAITS: Mapping[str, tuple[str, Callable[[Checkout], Readings]]] = {
    "set-up": ("`make package` with no `.venv`", set_up),
    "plan": ("`plan` of 10,000 settings, printed", plan),
    "nothing-to-do": ("the same command again, all 45 runs measured", nothing_to_do),
    "first-run": ("a sweep of one tiny run, with report and MLflow", first_run),
    "twelve-runs": ("a sweep of twelve tiny runs, with report and MLflow", twelve_runs),
    "isolated-run": ("an isolated run of a block", isolated_run),
    "own-environment": ("a sweep of a script in an environment of its own, three blocks", own_environment),
    "report": ("collect, analyse and report 10,000 runs", report),
    "slurm-job": ("a sweep of two Slurm jobs of one tiny run", slurm_job),
}
"""Name -> what is waited for, and the function that measures it once."""


def page(found: Mapping[str, tuple[Sequence[Readings], Sequence[Readings]]], commits: Sequence[str]) -> str:
    """Return the table as Markdown."""
    pairs = max(len(before) for before, _ in found.values())
    lines = [
        f"# Waiting times, {commits[0]} and {commits[1]}",
        "",
        f"Written by `benchmarks/waits.py` on {datetime.now(UTC):%Y-%m-%d}, on {cpu_model()}, "
        f"{usable_cores()} cores. Medians of up to {pairs} pairs, measured in turns; the ratio with its 95 % "
        "interval." + (" Both set-ups find the packages in the caches of pip and uv." if "set-up" in found else ""),
        "",
        "| wait | reading | before | after | after / before |",
        "|---|---|---|---|---|",
    ]
    for name, (before, after) in found.items():
        for number, unit in enumerate(before[0]):
            old, new = [one[unit] for one in before], [one[unit] for one in after]
            cells = [WAITS[name][0] if number == 0 else "", unit, _median(old), _median(new), _ratio(old, new)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g}"


def _ratio(before: Sequence[float], after: Sequence[float]) -> str:
    logs = [math.log(new / old) for old, new in zip(before, after, strict=True)]
    if len(logs) < 2 or len(set(logs)) == 1:
        return f"{math.exp(statistics.mean(logs)):.2f}"
    mean, low, high = interval(logs, 0.95)
    return f"{math.exp(mean):.2f} ({math.exp(low):.2f} to {math.exp(high):.2f})"


def commit_of(root: Path) -> str:
    """Return the short name of a checkout's commit."""
    command = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure every wait in turns, print each reading, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("older", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default=",".join(WAITS), help="names of waits, separated by commas")
    parser.add_argument("--out", type=Path, help="write the table here as well")
    options = parser.parse_args()
    found: dict[str, tuple[list[Readings], list[Readings]]] = {}
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        checkouts = [Checkout(options.older.resolve(), Path(place, "older")), Checkout(HERE, Path(place, "newer"))]
        for checkout in checkouts:
            checkout.home.mkdir()
        for name in options.only.split(","):
            if name == "slurm-job":
                stack.enter_context(slurm_cluster())
            for warm_up in checkouts:  # fills the caches: not counted
                if name not in ("set-up", "slurm-job"):  # their caches are full already
                    WAITS[name][1](warm_up)
            found[name] = [], []
            for _ in range(options.pairs):
                for number in random.sample((0, 1), 2):
                    found[name][number].append(reading := WAITS[name][1](checkouts[number]))
                    print(name, ("before", "after")[number], json.dumps(reading), flush=True)
    text = page(found, [commit_of(options.older), commit_of(HERE)])
    print(text)
    if options.out:
        options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

"""Every benchmark still runs: each one at its smallest size, to its last printed line."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from projects import copy_project

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


class Smallest(NamedTuple):
    """Arguments of a benchmark's smallest size, and a pattern that its last line has."""

    arguments: tuple[str, ...]
    ends_with: str


SMALLEST = {
    "ab.py": Smallest(
        ("--gates", "1", "--truths", "1", "--rounds", "1", "--settings", "1", "--seconds", "0.1"), r"\|.*\|$"
    ),
    "bare_train.py": Smallest(("2", "0"), r"^seconds [\d.]+$"),
    "bursts.py": Smallest(
        ("--sweeps", "1", "accelerator=cpu", "devices=1", "precision=32-true", "repeats=3", "measure=quick"),
        r"^Against the aims: ",
    ),
    "coverage.py": Smallest(("20",), r"^\|.*\|$"),
    "fidelity.py": Smallest(("--pairs", "2", "--steps", "20"), r"us"),
    "fleet.py": Smallest(("5",), r"^\| 39 \|.*\|"),
    "follow.py": Smallest(("2",), r"^followed / alone: .*95 %, 2 pairs"),
    "fuzz.py": Smallest(("--minutes", "0.1"), r"^all +\d+"),
    "lightning_overhead.py": Smallest(("--pairs", "2", "--steps", "20"), r"the flag alone .*us per step"),
    "overhead.py": Smallest(("1", "1"), r"by hand / fork: [\d.]+ x"),
    "plan.py": Smallest(("--settings", "200", "--sample", "2"), r"x \(make_plan and write_plan\)$"),
    "projection.py": Smallest(("--form", "inference-amp"), r"\S"),
    "publish.py": Smallest(("--runs", "2", "--repeats", "1"), r"x \([\d.]+ to [\d.]+\)$"),
    "report.py": Smallest(("--settings", "4", "--repeats", "3"), r"records\.parquet [\d.]+ MB$"),
    "sampler_cost.py": Smallest(("--blocks", "2", "--seconds", "0.6"), r"^rate with / without: .*, 2 blocks$"),
    "script_overhead.py": Smallest(("--rounds", "2"), r"^2 rounds; a step takes \d+ us without them$"),
    "slurm.py": Smallest(("--settings", "1", "--repeats", "3", "--starts", "2"), r"^load of the machine at the end"),
    "waits.py": Smallest((str(ROOT), "--pairs", "1", "--only", "twelve-runs"), r"^\| a sweep of twelve .*\| 1\.00 \|$"),
    "soak.py": Smallest(("--runs", "4"), r"^curves: .*curves\.csv$"),
}
PARTS_OF_OTHERS = {"loop_stopwatch.py", "one_run.py"}
"""Modules that benchmarks import."""

NEEDS_CLONES = {"published_rates.py"}
"""Reads clones of public repositories; a test of its own gives it small ones."""


NEEDS_PROJECT = {"entry_rates.py", "public_projects.py", "public_scripts.py"}
"""Measure projects of other people; a test of its own gives `entry_rates.py` a small one."""

NEEDS_PEERS = {"instruments.py"}
"""Needs an environment with transformers and other tools; a test of its own reads its page."""


def run(command: list[str], home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in `home`; it waits for nothing else that runs on this machine."""
    alone = {**os.environ, "ACCELSWEEP_LEASES": str(home / "leases"), **environment}
    return subprocess.run([sys.executable, *command], cwd=home, env=alone, capture_output=True, text=True, check=False)


def test_every_benchmark_has_a_smallest_size() -> None:
    assert {
        path.name for path in BENCHMARKS.glob("*.py")
    } == SMALLEST.keys() | PARTS_OF_OTHERS | NEEDS_CLONES | NEEDS_PROJECT | NEEDS_PEERS


@pytest.mark.long  # minutes in all; they measure, and only running one shows that it still can
@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slurm] * (name == "slurm.py")) for name in SMALLEST]
)
def test_a_benchmark_runs_at_its_smallest_size(name: str, tmp_path: Path) -> None:
    """It ends with 1 where an aim is missed, which so small a size may do."""
    options = ("--out", str(tmp_path / "out")) if name == "soak.py" else ()
    done = run([str(BENCHMARKS / name), *SMALLEST[name].arguments, *options], tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stdout.strip().splitlines()
    assert lines, done.stderr
    assert re.search(SMALLEST[name].ends_with, lines[-1]), done.stdout


@pytest.mark.long  # beside the others: a copy of a project, into which it writes
@pytest.mark.real
def test_a_scripts_rate_is_compared_with_a_stopwatch(tmp_path: Path) -> None:
    home = copy_project("script", tmp_path)
    overrides = ("accelerator=cpu", "devices=1", "batch_size=32", "precision=32-true", "measure=quick")
    options = ("--entry", "python train.py", "--own=--batch-size=32 --epochs=1000", "--seconds", "0.3", "--pairs", "1")
    done = run([str(BENCHMARKS / "entry_rates.py"), str(home), *overrides, *options], home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"^accelsweep / stopwatch: median [\d.]+ .* of 1 pairs, fastest [\d.]+; ", done.stdout.splitlines()[-1]
    )


def test_the_page_of_instruments_says_what_was_not_measured_and_whether_the_rates_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import instruments

    rates = {"stopwatch": [100.0, 102.0, 101.0], "accelsweep": [100.2, 101.9, 101.1]}
    text, agrees = instruments.page(rates, [1.0001, 0.9999], {"torch": "2.13.0"}, 5.0)
    assert agrees
    assert "accelsweep's rate lies within 3 % of it" in text
    assert "| accelsweep |" in text
    assert "| pyperf | not installed | not measured | |" in text
    text, agrees = instruments.page(rates | {"accelsweep": [80.0, 120.0, 100.0]}, [1.02, 1.0], {}, 5.0)
    assert not agrees
    assert "is not shown to lie within 3 % of it" in text


@pytest.mark.long  # beside the others: a copy of the sources, into which it writes
@pytest.mark.real
def test_published_rates_are_read_from_clones(tmp_path: Path) -> None:
    """Two tables of timm and two of Lambda with one model each, whose counts are known already."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import published_rates
    finally:
        sys.path.remove(str(BENCHMARKS))
    timm, lambdal, counted = tmp_path / "timm", tmp_path / "lambda", tmp_path / "counted.jsonl"
    for _, _, name in published_rates.TIMM:
        task = name.partition("-")[0]
        header = ["model", f"{task}_img_size", f"{task}_batch_size", f"{task}_samples_per_sec"]
        table(timm / f"results/benchmark-{name}.csv", header, ["resnet50", "224", "256", "1000"])
    for precision in ("fp16", "fp32"):
        for kind in ("train-throughput", "train-bs"):
            header = ["name_gpu", "num_gpu", *published_rates.LAMBDA_MODELS]
            table(lambdal / f"pytorch/pytorch-{kind}-{precision}.csv", header, ["RTX 3090", "1", "500", "100", "40"])
    for clone in (timm, lambdal):
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", str(clone), *command], check=True)
    traits = dict.fromkeys(published_rates.COUNTED_COLUMNS, 1e9) | {"recurrent": False}
    models = ["resnet50@224", "resnet50@224+eager", "bert_base@384", "bert_large@384"]
    counted.write_text("".join(json.dumps({"model": model, **traits}) + "\n" for model in models), encoding="utf-8")
    command = [str(BENCHMARKS / "published_rates.py"), "--timm", str(timm), "--lambda", str(lambdal)]
    done = run([*command, "--counted", str(counted)], tmp_path, PYTHONPATH=str(copy / "src"))
    assert done.returncode == 0, done.stderr
    assert "11 rates of 3 models; 0 not counted" in done.stdout
    assert (copy / "src/accelsweep/features/projection/data/rates.csv").read_text("utf-8").count("resnet50@224,") == 1


def table(path: Path, header: list[str], row: list[str]) -> None:
    """Write a CSV file of one row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, row])

r"""Sweep public projects as they stand, and compare each one's rate with a stopwatch in its own loop.

    python benchmarks/public_projects.py FOLDER --python PYTHON --out docs/evidence/public-projects-DATE

FOLDER contains a checkout of each project, or, for a single file, only that file: nothing is downloaded here. Where
data is missing, random data in the project's own format is written. Each project is swept over batch size, precision
and one and two processes, and `accelsweep apply` writes the recommendation back if there is one. No tracked file may
change. The results are written after each project; those of projects that --only leaves out are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from entry_rates import by_accelsweep, by_stopwatch, in_one_run
from PIL import Image

QUICK = "repeats=2 measure=quick"
SLOW = (
    "repeats=2 measure.warmup_steps=3 measure.min_steps=6 measure.min_seconds=1 measure.quality_samples=16 "
    "measure.probe_steps=null"
)
"""For networks that take a second per step on two cores."""
SLOWEST = "repeats=1 measure.warmup_steps=2 measure.min_steps=3 measure.min_seconds=0.1 measure.probe_steps=null"
"""For one that takes several."""


def mnist(folder: Path) -> None:
    """Write 60,000 and 10,000 random digits, whose label is visible, in MNIST's own format."""
    raw = folder / "data/MNIST/raw"
    raw.mkdir(parents=True)
    random = numpy.random.default_rng(0)
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        labels = random.integers(0, 10, count, dtype="u1")
        images = random.integers(0, 80, (count, 28, 28), dtype="u1")
        images[numpy.arange(count), 0, 2 * labels] = 255
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def photographs(where: str) -> Callable[[Path], None]:
    """Return a function that writes 640 and 160 random JPEG files in ten folders, one per class."""

    def write(folder: Path) -> None:
        random = numpy.random.default_rng(0)
        for part, count in (("train", 640), ("val", 160)):
            for number in range(count):
                file = folder / where / part / f"class{number % 10}" / f"{number:05}.jpg"
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = random.integers(0, 255, (12, 16, 3), dtype="u1")
                Image.fromarray(pixels).resize((500, 375)).save(file, quality=90)

    return write


def labelled_tiles(folder: Path) -> None:
    """Write 4,000 random PNG files of 32x32 pixels and their labels, as in Kaggle's CIFAR-10 competition."""
    random, rows = numpy.random.default_rng(0), ["id,label"]
    (folder / "datasets/train").mkdir(parents=True)
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    for number in range(1, 4001):
        pixels = random.integers(0, 120, (32, 32, 3), dtype="u1")
        Image.fromarray(pixels).save(folder / f"datasets/train/{number}.png")
        rows.append(f"{number},{names[int(random.integers(10))]}")
    (folder / "datasets/trainLabels.csv").write_text("\n".join(rows) + "\n")


@dataclass(frozen=True)
class Project:
    """A public project: where it comes from, and how it is swept and timed.

    `entry` is the command as its authors type it, `sweep` what is typed after `accelsweep run` besides; the script is
    found if `names_entry` is False. `timed` is accelsweep's setting for the comparison with the stopwatch, and `own`
    the same in the project's words; None if the setting cannot be reached on a CPU without changing the project.
    """

    name: str
    source: str
    commit: str
    licence: str
    form: str
    entry: str
    sweep: str
    timed: str
    own: str | None
    make_data: Callable[[Path], None]
    data: str
    names_entry: bool = True
    on_path: bool = False

    def typed(self, python: str) -> list[str]:
        """Return the command that sweeps the project."""
        entry = ["--entry", self.entry.replace("python", python, 1)] if self.names_entry else []
        return ["accelsweep", "run", *entry, *shlex.split(self.sweep)]


_FOLDERS = (
    "data.datasets.type=ImageFolderDataset ~data.datasets.root ~data.datasets.download "
    "+data.datasets.data_root=data/random ~data.datasets.splits.train.train +data.datasets.splits.train.mode=train "
    "~data.datasets.splits.test.train +data.datasets.splits.test.mode=val"
)

_TEMPLATE = Project(
    "lightning-hydra-template",
    "ashleve/lightning-hydra-template",
    "bddbc24b82ab6ccfa6243e815a49dc5bfe8d4144",
    "MIT",
    "Hydra, objects from `_target_`",
    "python src/train.py",
    f"batch_size=64,128 precision=32-true,bf16-mixed devices=1,2 {QUICK}",
    "accelerator=cpu devices=1 batch_size=256 precision=32-true",
    "data.batch_size=256 trainer.max_epochs=1000 trainer.accelerator=cpu",
    mnist,
    "data/MNIST",
    names_entry=False,
)

PROJECTS = (
    _TEMPLATE,
    replace(
        _TEMPLATE,
        name="lightning-hydra-template-extended",
        source="josmithiii/lightning-hydra-template-extended",
        commit="6b83ffc9bb04b627ff60268863402f30be333b08",
    ),
    Project(
        "imagenet",
        "Lightning-AI/pytorch-lightning, examples/pytorch/domain_templates/imagenet.py",
        "7f0c3436cd3f6ad3753125672024fc415cbcb414",
        "Apache-2.0",
        "LightningCLI, class given in code",
        "python imagenet.py fit --model.data_path data --model.arch shufflenet_v2_x0_5 --model.workers 0",
        f"accelerator=cpu batch_size=4,8 precision=32-true,bf16-mixed devices=1,2 {SLOW}",
        "accelerator=cpu devices=1 batch_size=8 precision=32-true",
        "--model.batch_size 8 --trainer.max_epochs 1000 --trainer.accelerator cpu --trainer.devices 1",
        photographs("data"),
        "data/train",
    ),
    Project(
        "CIFAR-10-Object-Recognition-in-Images",
        "ImRTon/CIFAR-10-Object-Recognition-in-Images",
        "cf218b33f17842280833c939b6dea4bd596ec521",
        "none stated",
        'LightningCLI, `link_arguments(apply_on="instantiate")`',
        "python main.py fit --data.data_dir=datasets/train --data.label_path=datasets/trainLabels.csv "
        "--model.backbone Simple --model.lr 0.01 --data.target_size 32",
        f"accelerator=cpu batch_size=8,16 precision=32-true,bf16-mixed devices=1,2 quality=val_acc {SLOW}",
        "accelerator=cpu devices=1 batch_size=16 precision=32-true",
        "--data.batch_size 16 --trainer.max_epochs 1000 --trainer.accelerator cpu --trainer.devices 1",
        labelled_tiles,
        "datasets/train",
    ),
    Project(
        "tmpl",
        "npurson/tmpl",
        "6f9c61f81b13bd9fcc36657e1561dee497a72882",
        "MIT",
        "Hydra, model, data and Trainer built in code",
        f"python tools/train.py models=resnet18 {_FOLDERS}",
        "accelerator=cpu batch_size=2,4 precision=32-true,bf16-mixed devices=1,2 quality=val/MulticlassAccuracy "
        "trainer.sync_batchnorm=false "  # their config sets it, and torch has it for GPUs only
        f"{SLOW}",
        "accelerator=cpu devices=1 batch_size=4 precision=32-true",
        "data.loader.batch_size=4 +trainer.accelerator=cpu trainer.devices=1 trainer.precision=32-true",
        photographs("data/random"),
        "data/random/train",
        on_path=True,
    ),
    Project(
        "gpt",
        "al-jshen/gpt",
        "857877df281ab36422b28a83eaab6a8135e84d77",
        "MIT",
        "script with argparse, Trainer built in code",
        "python train/train.py --dataset mnist --data_dir data",
        f"accelerator=cpu batch_size=2,4 precision=32-true,bf16-mixed devices=1,2 {SLOWEST}",
        "",
        None,  # the script says accelerator="gpu", which accelsweep replaces and a stopwatch cannot
        mnist,
        "data/MNIST",
        on_path=True,
    ),
)


def measure(project: Project, home: Path, python: str, seconds: float, pairs: int) -> dict[str, Any]:
    """Sweep a project, apply the recommendation, and take turns with the stopwatch."""
    if not (home / project.data).exists():
        project.make_data(home)
    before = tracked_files(home)
    sweep = swept(project.typed(python), home, python)
    applied = call([sys.executable, "-m", "accelsweep", "apply", sweep["sweep"], "--force"], home)
    result: dict[str, Any] = {
        "source": project.source,
        "commit": project.commit,
        "licence": project.licence,
        "form": project.form,
        "typed": shlex.join(project.typed("python")),
        **sweep,
        "apply": (applied.stdout + applied.stderr).replace(str(home), ".").splitlines()[-3:],
    }
    if project.own is not None:
        words = shlex.split(project.entry)
        overrides = [*shlex.split(project.timed), "measure.quality_samples=null", "measure.probe_steps=null"]
        paired = f"paired-{time.time_ns()}"
        own = shlex.split(project.own)
        result["pairs"] = take_turns(
            project.name,
            lambda: by_stopwatch(home, python, words, own, seconds),
            lambda: by_accelsweep(home, python, words, overrides, seconds, paired)["samples_per_second"],
            pairs,
        )
        result["one_run"] = in_one_run(home, python, words, overrides, seconds, f"witnessed-{time.time_ns()}")
    result["changed_files"] = sorted({name for name, _ in before.items() ^ tracked_files(home).items()})
    return result


def swept(command: list[str], home: Path, python: str) -> dict[str, Any]:
    """Sweep a project with the command that its user types, and return what became of it."""
    name, started = f"public-{len(list(home.glob('sweeps/*')))}", time.monotonic()
    done = call([sys.executable, "-m", *command, "--name", name], home)
    minutes = (time.monotonic() - started) / 60
    lines = (done.stdout + done.stderr).replace(python, "PYTHON").replace(str(home), ".").splitlines()
    records = [json.loads(file.read_text("utf-8"))["body"] for file in home.glob(f"sweeps/{name}/runs/*/record.json")]
    return {
        "sweep": name,
        "exit": done.returncode,
        "minutes_to_the_report": minutes,
        "outcomes": Counter(record["outcome"] for record in records),
        "reasons": sorted({record["reason"] for record in records if record["reason"]}),
        "notes": [line for line in lines if line.startswith("note: ")],
        "end": lines[-12:],
    }


def take_turns(name: str, own: Callable[[], float], ours: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Return the rates of the stopwatch and of accelsweep, which take turns."""
    rates = list[tuple[float, float]]()
    for _ in range(pairs):
        rates.append((own(), ours()))
        print(name, "stopwatch {:.2f}, accelsweep {:.2f} samples/s".format(*rates[-1]), flush=True)
    return rates


def call(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a project's folder."""
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)


def tracked_files(home: Path) -> dict[str, str]:
    """Return the digest of each source file of a project, by name; of a folder without git, those at its top."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=home, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if (home / ".git").exists() else [file.name for file in home.glob("*.py")]
    files = [home / name for name in names if name and (home / name).is_file()]
    return {str(file.relative_to(home)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def page(results: dict[str, dict[str, Any]], title: str = "Public projects, as they stand", said: str = "") -> str:
    """Return the results as a page of Markdown; `said` stands below the explanation."""
    rows = [
        "| name | what it is | lines written | runs | minutes | same steps | separate runs: median, fastest | pairs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in results.items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in one["outcomes"].items()) or "none"
        rows.append(
            f"| {name} | {one['form']} | {len(one.get('written', '').splitlines()) or 'none'} | {outcomes} | "
            f"{one['minutes_to_the_report']:.1f} | {compared(one.get('one_run'), one.get('pairs'))} |"
        )
    parts = [f"# {title}", "", _EXPLANATION, "", *([said, ""] if said else []), *rows, ""]
    for name, one in results.items():
        parts += [f"## {name}", "", f"{one['source']} at {one['commit']}, licence: {one['licence']}", "", "```sh"]
        parts += [one["typed"], "```", ""]
        if one.get("written"):
            parts += ["written into accelsweep.yaml:", "", "```yaml", one["written"].rstrip(), "```", ""]
        parts += [f"* {line.removeprefix('note: ')}" for line in one["notes"]]
        parts += [f"* not measured: {reason}" for reason in one["reasons"]]
        parts += [f"* {remark}" for remark in one.get("remarks", [])]
        parts += [f"* tracked files that changed: {', '.join(one['changed_files']) or 'none'}", "", "```"]
        parts += [*one["end"], *one.get("apply", []), "```", ""]
    return "\n".join(parts)


_EXPLANATION = """\
The last columns divide the rate that accelsweep recorded by that of a stopwatch in the project's own loop: in one run,
where both time the same steps; and in separate runs that take turns, one of them without accelsweep. Other work on
the machine only makes a rate lower, so on a busy machine the fastest runs of each are compared as well."""


def compared(one_run: tuple[float, float] | None, pairs: list[tuple[float, float]] | None) -> str:
    """Return the cells that compare rates with the stopwatch's."""
    same = "not timed" if one_run is None else f"{one_run[1] / one_run[0]:.4f}"
    if not pairs:
        return f"{same} | not timed | 0"
    ratios = [ours / own for own, ours in pairs]
    fastest = max(ours for _, ours in pairs) / max(own for own, _ in pairs)
    return f"{same} | {statistics.median(ratios):.3f}, {fastest:.3f} | {len(pairs)}"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that public projects and public scripts share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True, help="the interpreter of the environment that the projects use")
    parser.add_argument("--only", default="", help="a regular expression that a project's name must match")
    parser.add_argument("--seconds", type=float, default=5.0, help="what the stopwatch times, and the window's length")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main() -> int:
    """Measure the chosen projects; return 1 if a sweep failed or a file changed."""
    options = parser(__doc__).parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["VIRTUAL_ENV"] = str(Path(options.python).parent.parent)  # as in a shell that has activated it
    file, inherited = options.out / "results.json", os.environ.get("PYTHONPATH")
    results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for project in PROJECTS:
        home = (options.folder / project.name).resolve()
        if not re.search(options.only, project.name) or not home.is_dir():
            continue
        if project.on_path:  # the project's README has its users set this
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home), inherited]))
        results[project.name] = measure(project, home, options.python, options.seconds, options.pairs)
        os.environ.pop("PYTHONPATH", None)
        if inherited:
            os.environ["PYTHONPATH"] = inherited
        results = {one.name: results[one.name] for one in PROJECTS if one.name in results}
        file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        (options.out / "results.md").write_text(page(results), "utf-8")
        print(next(line for line in page(results).splitlines() if line.startswith(f"| {project.name} |")), flush=True)
    return 1 if any(one["exit"] or one["changed_files"] for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

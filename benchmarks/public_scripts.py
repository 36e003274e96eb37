r"""Sweep public training scripts as they stand, and compare each one's rate with a stopwatch in its own loop.

    python benchmarks/public_scripts.py FOLDER --python PYTHON --transformers PYTHON \
        --out docs/evidence/public-scripts-DATE

Unlike those of `public_projects.py`, these scripts have no Lightning Trainer. FOLDER contains examples (the checkout of
pytorch/examples), pytorch-lightning, nanoGPT and transformers (two of its scripts, next to a small model, a tokenizer
and texts). Nothing is downloaded; MNIST is replaced by random digits. The stopwatch is one more line in a copy of the
script, which is removed afterwards. No source file may change. The results are written after each script; those of
scripts that --only leaves out are kept. With `--accelerator cuda` the sweeps compare the CPU with one GPU, and the
stopwatch times the latter.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
from entry_rates import by_accelsweep, printed_rate
from public_projects import call, mnist, page, parser, swept, take_turns, tracked_files

BENCHMARKS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Script:
    """A public training script: where it comes from, and how it is swept and timed.

    `entry` is the command as its users type it, and `sweep` what is typed after `accelsweep run` besides. `timed` is
    accelsweep's setting for the comparison with the stopwatch, and `own` the same in the script's words. `line` is
    inserted after the line `anchor`. `written` is what accelsweep.yaml must contain, if anything.
    """

    name: str
    folder: str
    source: str
    commit: str
    licence: str
    form: str
    entry: str
    sweep: str
    timed: str
    own: str
    line: str
    anchor: str = "optimizer.step()"
    written: str = ""
    in_transformers: bool = False

    @property
    def file(self) -> str:
        """The script's name in its folder."""
        return self.entry.split()[1]

    def words(self, python: str, file: str) -> list[str]:
        """Return the command with another interpreter and script."""
        return [python, file, *shlex.split(self.entry)[2:]]

    def typed(self, python: str) -> list[str]:
        """Return the command that sweeps the script."""
        return ["accelsweep", "run", "--entry", self.entry.replace("python", python, 1), *shlex.split(self.sweep)]


_EXAMPLES = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8", "BSD-3-Clause")
_TRANSFORMERS = ("huggingface/transformers", "3a275d3581", "Apache-2.0")
_COUNT = "__import__('loop_stopwatch').step({})"
_ONE = "accelerator=cpu devices=1"
_QUICK = "repeats=1 measure=quick"
_PRECISIONS = "precision=32-true,bf16-mixed"

_MNIST = Script(
    "mnist",
    "examples/mnist",
    *_EXAMPLES,
    "plain loop, argparse",
    "python main.py --epochs 1000",
    f"accelerator=cpu batch_size=64,128 {_QUICK}",
    f"{_ONE} batch_size=64",
    "--batch-size 64",
    _COUNT.format("len(data)"),
)

SCRIPTS = (
    _MNIST,
    replace(_MNIST, name="vae", folder="examples/vae"),
    replace(
        _MNIST,
        name="imagenet",
        folder="examples/imagenet",
        entry="python main.py --dummy -a shufflenet_v2_x0_5 --workers 0 --epochs 2",
        sweep=f"accelerator=cpu batch_size=4,8 {_QUICK} measure.warmup_steps=5 measure.min_steps=10",
        timed=f"{_ONE} batch_size=8 measure.warmup_steps=20 measure.min_steps=20",
        own="--batch-size 8",
        line=_COUNT.format("len(images)"),
    ),
    Script(
        "word_language_model",
        "examples/word_language_model",
        *_EXAMPLES,
        "plain loop without a DataLoader, samples in the second dimension",
        "python main.py --epochs 1000 --use-optimizer --lr 0.001 --emsize 64 --nhid 64 --save {run_dir}/model.pt",
        f"accelerator=cpu batch_size=20,40 {_QUICK}",
        f"{_ONE} batch_size=20",
        "--batch_size 20",
        _COUNT.format("data.shape[1]"),
    ),
    Script(
        "dcgan",
        "examples/dcgan",
        *_EXAMPLES,
        "two models and optimisers in turn",
        "python main.py --dataset fake --niter 1000 --ngf 8 --ndf 8 --workers 0 --outf {run_dir}",
        f"accelerator=cpu batch_size=8,16 {_QUICK}",
        f"{_ONE} batch_size=16",
        "--batchSize 16",
        _COUNT.format("batch_size"),
        anchor="optimizerG.step()",
    ),
    Script(
        "run_clm",
        "transformers",
        *_TRANSFORMERS,
        "Hugging Face's Trainer",
        "python run_clm.py --model_type gpt2 --config_overrides n_layer=2,n_embd=64,n_head=2,n_positions=128,"
        "vocab_size=2000 --tokenizer_name tok --train_file text.txt --validation_file val.txt --block_size 128 "
        "--do_train --output_dir {run_dir} --max_steps 100000 --report_to none",
        f"accelerator=cpu batch_size=8,16 {_PRECISIONS} {_QUICK}",
        f"{_ONE} batch_size=8 precision=32-true",
        "--per_device_train_batch_size 8",
        "trainer.add_callback(__import__('loop_stopwatch').callback())",
        anchor="checkpoint = None",
        in_transformers=True,
    ),
    Script(
        "run_glue_no_trainer",
        "transformers",
        *_TRANSFORMERS,
        "Accelerate",
        "python run_glue_no_trainer.py --model_name_or_path bert --train_file train.csv --validation_file valid.csv "
        "--max_length 64 --pad_to_max_length --num_train_epochs 1000",
        f"accelerator=cpu batch_size=8,16 {_PRECISIONS} devices=1,2 {_QUICK}",
        f"{_ONE} batch_size=16 precision=32-true",
        "--per_device_train_batch_size 16",
        _COUNT.format("len(batch['labels'])"),
        in_transformers=True,
    ),
    Script(
        "image_classifier",
        "pytorch-lightning/examples/fabric/image_classifier",
        "Lightning-AI/pytorch-lightning",
        "7f0c3436cd3f6ad3753125672024fc415cbcb414",
        "Apache-2.0",
        "Fabric",
        "python train_fabric.py --epochs 100",
        f"accelerator=cpu batch_size=32,64 {_PRECISIONS} devices=1,2 {_QUICK}",
        f"{_ONE} batch_size=64 precision=32-true",
        "--batch-size 64",
        _COUNT.format("len(data)"),
    ),
    Script(
        "nanoGPT",
        "nanoGPT",
        "karpathy/nanoGPT",
        "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        "MIT",
        "plain loop with gradient accumulation, options read by its own code",
        "python train.py config/train_shakespeare_char.py --compile=False --n_layer=2 --n_embd=64 --n_head=2 "
        "--block_size=64 --eval_interval=1000000 --eval_iters=2 --max_iters=1000000 --gradient_accumulation_steps=4",
        f"accelerator=cpu batch_size=8,16 {_PRECISIONS} {_QUICK}",
        f"{_ONE} batch_size=16 precision=32-true",
        "--batch_size=16 --device=cpu --dtype=float32",
        _COUNT.format("batch_size * gradient_accumulation_steps"),
        anchor="scaler.step(optimizer)",
        written="axes: {batch_size: batch_size, accelerator: device, precision: dtype}\n"
        "values: {precision: {32-true: float32, bf16-mixed: bfloat16}}\n",
        in_transformers=True,
    ),
)


def on(script: Script, accelerator: str) -> Script:
    """Return the script as it is swept on a machine with one device of this kind."""
    if accelerator == "cpu":
        return script
    return replace(
        script,
        sweep=script.sweep.replace("accelerator=cpu", f"accelerator=cpu,{accelerator}").replace(" devices=1,2", ""),
        timed=script.timed.replace("accelerator=cpu", f"accelerator={accelerator}"),
        own=script.own.replace("--device=cpu", f"--device={accelerator}"),
    )


def measure(script: Script, home: Path, python: str, seconds: float, pairs: int) -> dict[str, Any]:
    """Sweep a script, and take turns with the stopwatch."""
    if script.written:
        (home / "accelsweep.yaml").write_text(script.written, "utf-8")
    before = tracked_files(home)
    result = {
        "source": f"{script.source}, {Path(script.folder.partition('/')[2], script.file)}",
        **{name: getattr(script, name) for name in ("commit", "licence", "form", "written")},
        "typed": shlex.join(script.typed("python")),
        **swept(script.typed(python), home, python),
        "remarks": [f"sha256 of {script.file}: {hashlib.sha256((home / script.file).read_bytes()).hexdigest()}"],
    }
    overrides, name = shlex.split(script.timed), f"paired-{time.time_ns()}"
    words = script.words(python, script.file)
    result["pairs"] = take_turns(
        script.name,
        lambda: by_its_stopwatch(script, home, python, seconds),
        lambda: by_accelsweep(home, python, words, overrides, seconds, name)["samples_per_second"],
        pairs,
    )
    *result["one_run"], share = in_one_run(script, home, python, seconds)
    result["remarks"] += [f"the recorded rate of that run / the rate of its steps, pauses included: {share:.4f}"]
    result["changed_files"] = sorted({name for name, _ in before.items() ^ tracked_files(home).items()})
    return result


@contextmanager
def copy_with_stopwatch(script: Script, home: Path) -> Iterator[str]:
    """Put a copy of the script with one more line, and the module that the line calls, next to the script."""
    text = (home / script.file).read_text("utf-8")
    anchor = re.compile(rf"^([ \t]*){re.escape(script.anchor)}.*$", re.MULTILINE)
    changed, found = anchor.subn(lambda match: f"{match[0]}\n{match[1]}{script.line}", text)
    assert found == 1, f"{script.anchor} is found {found} times in {script.file}"
    copy, module = home / f"{script.name}_stopwatch.py", home / "loop_stopwatch.py"
    try:
        copy.write_text(changed, "utf-8")
        shutil.copy(BENCHMARKS / module.name, module)
        yield copy.name
    finally:
        copy.unlink(missing_ok=True)
        module.unlink(missing_ok=True)


def by_its_stopwatch(script: Script, home: Path, python: str, seconds: float) -> float:
    """Return samples per second of the script's own loop, without accelsweep."""
    with copy_with_stopwatch(script, home) as file, tempfile.TemporaryDirectory() as folder:
        command = [word.replace("{run_dir}", folder) for word in script.words(python, file)]
        return printed_rate([*command, *shlex.split(script.own)], home, STOPWATCH_SECONDS=str(seconds))


def in_one_run(script: Script, home: Path, python: str, seconds: float) -> tuple[float, float, float]:
    """Return the stopwatch's samples per second, and accelsweep's, of the same steps of one run.

    These are all steps of the window but the last, within which accelsweep ends the script. Pauses are not taken out.
    The third number is the rate in the run's record, divided by that of all steps of its window.
    """
    name = f"witnessed-{time.time_ns()}"
    with copy_with_stopwatch(script, home) as file, tempfile.TemporaryDirectory() as folder:
        noted, words, timed = Path(folder) / "steps", script.words(python, file), shlex.split(script.timed)
        metrics = by_accelsweep(home, python, words, timed, seconds, name, STOPWATCH_FILE=str(noted))
        (recorded,) = home.glob(f"sweeps/{name}/runs/*/steps.parquet")
        own, ours, whole = rates_of_same_steps(noted, recorded)
    return own, ours, metrics["samples_per_second"] / whole


def rates_of_same_steps(noted: Path, recorded: Path) -> tuple[float, float, float]:
    """Return the stopwatch's samples per second and accelsweep's of the same steps, and accelsweep's of all steps.

    `noted` is the stopwatch's file, and `recorded` the run's table of steps.
    """
    steps = [tuple(map(float, line.split())) for line in noted.read_text("utf-8").splitlines()]
    window = [row for row in pyarrow.parquet.read_table(recorded).to_pylist() if row["phase"] == "window"]
    (begin, _), *same = steps[-len(window) :]
    return sum(samples for _, samples in same) / (same[-1][0] - begin), _rate(window[:-1]), _rate(window)


def _rate(steps: list[dict[str, Any]]) -> float:
    return float(sum(step["samples"] for step in steps) / sum(step["step_seconds"] for step in steps))


def make_digits(folder: Path) -> None:
    """Write random digits where pytorch/examples and Fabric's example look for MNIST, if there are none."""
    if (folder / "examples").is_dir() and not (folder / "examples/data").exists():
        mnist(folder / "examples")
    if (folder / "pytorch-lightning").is_dir() and not (folder / "pytorch-lightning/Datasets").exists():
        (folder / "pytorch-lightning/Datasets").symlink_to(folder / "examples/data")


_STOPWATCH = """\
The stopwatch is one line in a copy of the script. In one run, it times all steps of the window but the last, within
which accelsweep ends the script."""


def main() -> int:
    """Measure the hooks and the chosen scripts; return 1 if a sweep failed or a file changed."""
    options = parser(__doc__)
    options.add_argument("--transformers", help="the interpreter for transformers and nanoGPT; default: --python's")
    options.add_argument("--accelerator", default="cpu", help="what the scripts train on, besides the CPU")
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    folder, file = chosen.folder.resolve(), chosen.out / "results.json"
    os.environ["HF_HUB_OFFLINE"] = "1"
    make_digits(folder)
    known = json.loads(file.read_text("utf-8")) if file.exists() else {}
    hooks, results = known.get("hooks", ""), known.get("scripts", {})
    if re.search(chosen.only, "hooks"):
        hooks = call([sys.executable, str(BENCHMARKS / "script_overhead.py")], folder).stdout.strip()
        print(hooks, flush=True)
    for script in SCRIPTS:
        home = (folder / script.folder).resolve()
        if not re.search(chosen.only, script.name) or not home.is_dir():
            continue
        python = (script.in_transformers and chosen.transformers) or chosen.python
        os.environ["VIRTUAL_ENV"] = str(Path(python).parent.parent)  # as in a shell that has activated it
        results[script.name] = measure(on(script, chosen.accelerator), home, python, chosen.seconds, chosen.pairs)
        results = {one.name: results[one.name] for one in SCRIPTS if one.name in results}
        file.write_text(json.dumps({"hooks": hooks, "scripts": results}, indent=1) + "\n", "utf-8")
        text = page(results, "Public training scripts, as they stand", f"{_STOPWATCH}\n\n{hooks}".strip())
        (chosen.out / "results.md").write_text(text, "utf-8")
        print(next(line for line in text.splitlines() if line.startswith(f"| {script.name} |")), flush=True)
    return 1 if any(one["exit"] or one["changed_files"] for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

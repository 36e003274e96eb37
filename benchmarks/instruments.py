r"""Measure one training with four instruments that take turns: a stopwatch, accelsweep, optimum-benchmark and pyperf.

    python benchmarks/instruments.py --python PYTHON [--rounds 12] [--seconds 5] [--out docs/evidence/instruments.md]

PYTHON belongs to an environment with optimum-benchmark, pyperf, accelerate and the same torch; an instrument that it
lacks is left out, and the page says so. The training is a small BERT on random tokens in Hugging Face's Trainer, on one
thread (peers/text_classifier.py). The order within a round is random. Each measurement is a new process. In addition,
stopwatch and accelsweep time the same steps of one run, which a machine's noise cannot make different. Prints a
Markdown page; returns 1 if these two rates differ by more than 1 % in any round.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from entry_rates import by_accelsweep, printed_rate
from one_run import interval
from public_scripts import rates_of_same_steps

from accelsweep.devices.cpu import cpu_model
from accelsweep.devices.linux import usable_cores

PEERS = Path(__file__).resolve().parent / "peers"
BATCH, LENGTH, WARMUP = 16, 64, 20
BAND = (0.97, 1.03)
SAME = 0.01
CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "vocab_size": 2000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
}
WAY = {
    "stopwatch": "two readings of the clock in a callback of the script, after a warm-up",
    "accelsweep": "`accelsweep run --entry 'python text_classifier.py ...'`, the script as it is",
    "optimum-benchmark": "its script, data and Trainer for the same model: the batch divided by the mean latency of "
    "a step, which leaves out the time between steps",
    "pyperf": "a function that makes the same steps by hand, without the Trainer's loop",
}


class Instruments:
    """The four instruments, with the same model, batch and number of threads."""

    def __init__(self, home: Path, python: str, seconds: float) -> None:
        """Write the model, whose weights are random; nothing is downloaded."""
        self._home, self._python, self._seconds = home, python, seconds
        (home / "model").mkdir()
        (home / "model" / "config.json").write_text(json.dumps(CONFIG), "utf-8")
        self._script = [str(PEERS / "text_classifier.py"), "--model", str(home / "model")]
        self._script += ["--output_dir", str(home / "output"), "--length", str(LENGTH)]
        self._output([python, *self._script, "--save"])  # optimum-benchmark would download a model without weights
        self._steps = 0

    def stopwatch(self) -> float:
        """Return samples per second of the script with a stopwatch in it."""
        command = [self._python, *self._script, "--per_device_train_batch_size", str(BATCH), "--stopwatch"]
        rate = printed_rate(command, self._home, STOPWATCH_SECONDS=str(self._seconds))
        self._steps = self._steps or max(10, round(self._seconds * rate / BATCH))
        return rate

    def accelsweep(self) -> float:
        """Return samples per second as accelsweep records them."""
        return float(self._swept("instruments")["samples_per_second"])

    def same_run(self) -> float:
        """Return accelsweep's rate divided by the stopwatch's, of the same steps of one run."""
        name, noted = f"same-{time.time_ns()}", self._home / "noted"
        self._swept(name, "--stopwatch", STOPWATCH_FILE=str(noted))
        (recorded,) = self._home.glob(f"sweeps/{name}/runs/*/steps.parquet")
        own, ours, _ = rates_of_same_steps(noted, recorded)
        return ours / own

    def _swept(self, name: str, *options: str, **environment: str) -> dict[str, Any]:
        overrides = [f"batch_size={BATCH}", "accelerator=cpu", "devices=1", "threads=1", "measure=quick"]
        overrides += [f"measure.warmup_steps={WARMUP}", "measure.quality_samples=null"]
        command = ["python", *self._script, *options]
        return by_accelsweep(self._home, self._python, command, overrides, self._seconds, name, **environment)

    def optimum_benchmark(self) -> float:
        """Return samples per second of as many steps as the stopwatch first saw in its time."""
        sizes = [str(self._home / "model"), *map(str, (BATCH, LENGTH, WARMUP, self._steps))]
        output = self._output([self._python, str(PEERS / "by_optimum_benchmark.py"), *sizes])
        return float(next(line for line in output.splitlines() if line.startswith("rate ")).split()[1])

    def pyperf(self) -> float:
        """Return samples per second of one worker of pyperf: one warm-up, then three values."""
        file = self._home / f"pyperf-{time.time_ns()}.json"
        loops = max(1, self._steps // 3)
        options = ["--processes", "1", "--values", "3", "--warmups", "1", "--loops", str(loops), "--output", str(file)]
        options += ["--inherit-environ", "OMP_NUM_THREADS,PYTHONPATH", "--quiet", "--batch_size", str(BATCH)]
        options += ["--length", str(LENGTH), *self._script[1:5]]
        self._output([self._python, str(PEERS / "by_pyperf.py"), *options])
        (benchmark,) = json.loads(file.read_text("utf-8"))["benchmarks"]
        return BATCH / statistics.fmean(benchmark["runs"][-1]["values"])

    def _output(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self._home, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those packages that an environment has."""
    code = (
        "import importlib.metadata as m, json\n"
        f"found = {{d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}}\n"
        f"print(json.dumps({{name: found[name] for name in {packages!r} if name in found}}))"
    )
    return dict(json.loads(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout))


def page(rates: dict[str, list[float]], same: list[float], found: dict[str, str], seconds: float) -> tuple[str, bool]:
    """Return the page, and whether the rates of the `same` runs agree; these are accelsweep's over the stopwatch's."""
    rounds, shown = len(rates["stopwatch"]), False
    rows = ["| instrument | how | median samples/s | relative to the stopwatch (95 %) |", "|---|---|---|---|"]
    for name, way in WAY.items():
        if name not in rates:
            rows.append(f"| {name} | not installed | not measured | |")
            continue
        said = "1"
        if name != "stopwatch":
            logs = [math.log(one / own) for one, own in zip(rates[name], rates["stopwatch"], strict=True)]
            ratio, low, high = (math.exp(value) for value in interval(logs, 0.95))
            said = f"{ratio:.3f} ({low:.3f} to {high:.3f})"
            shown |= name == "accelsweep" and BAND[0] <= low and high <= BAND[1]
        rows.append(f"| {name} | {way} | {statistics.median(rates[name]):.1f} | {said} |")
    rows.append(
        f"| accelsweep, same steps | stopwatch and accelsweep in one run | | {statistics.median(same):.4f} "
        f"({min(same):.4f} to {max(same):.4f}, least to most) |"
    )
    separate = "lies within 3 % of it" if shown else "is not shown to lie within 3 % of it by so few rounds"
    lines = [
        "# Against other instruments",
        "",
        "`python benchmarks/instruments.py` writes this page.",
        "",
        f"The same training, measured in {rounds} rounds, each instrument once in a round and in random order, about "
        f"{seconds:g} s each: a BERT of {CONFIG['num_hidden_layers']} layers of {CONFIG['hidden_size']} on {LENGTH} "
        f"random tokens, batch {BATCH}, in Hugging Face's Trainer, on one thread of {cpu_model()} "
        f"({usable_cores()} threads), {datetime.now(UTC):%Y-%m-%d}.",
        "",
        f"Python {platform.python_version()}, {', '.join(f'{name} {version}' for name, version in found.items())}.",
        "",
        *rows,
        "",
        f"In separate runs, which differ by the machine's noise, accelsweep's rate {separate}.",
    ]
    return "\n".join(lines) + "\n", all(abs(ratio - 1) <= SAME for ratio in same)


def main() -> int:
    """Take turns, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the environment with transformers and the instruments")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: one round has no interval")
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    found = versions(options.python, ("torch", "transformers", "accelerate", "optimum-benchmark", "pyperf"))
    rates: dict[str, list[float]] = {}
    same: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        instruments = Instruments(Path(folder), options.python, options.seconds)
        kinds: dict[str, Callable[[], float]] = {
            "stopwatch": instruments.stopwatch,
            "accelsweep": instruments.accelsweep,
            "optimum-benchmark": instruments.optimum_benchmark,
            "pyperf": instruments.pyperf,
        }
        names = [name for name in kinds if name in (*list(kinds)[:2], *found)]
        order = random.Random(1)
        instruments.stopwatch()  # the number of steps of the others, and warm files
        for turn in range(options.rounds):
            for name in order.sample(names, len(names)):
                rates.setdefault(name, []).append(kinds[name]())
            same.append(instruments.same_run())
            last = {name: round(rates[name][-1], 1) for name in names}
            print(f"round {turn + 1}:", last, f"{same[-1]:.4f}", file=sys.stderr, flush=True)
    text, agrees = page(rates, same, found, options.seconds)
    if options.out:
        options.out.write_text(text, "utf-8")
    print(text, end="")
    return 0 if agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Compare accelsweep's rate with that of a loop written by hand; show what the probe and Lightning cost per step.

    python benchmarks/fidelity.py [--pairs 30] [--steps 400] [--batch-size 32] [--accelerator cpu]

Every measurement is a process of its own, forked from one that has torch loaded. The three kinds of loop (by hand,
`loop: raw`, `loop: lightning`) take turns in random order. All have the same model, data, seed, threads and number of
steps. The ratio's 90 % interval is a paired t interval on log rates. It must lie within 0.97-1.03; otherwise the result
is `inconclusive`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from one_run import WARMUP, interval, metric_of, spec_of

from accelsweep.records.run_files import read_rank_result
from accelsweep.worker.main import preload, run_rank

BAND = (0.97, 1.03)


def our_rate(options: argparse.Namespace, loop: str, seed: int) -> float:
    """Return samples per second as accelsweep records them."""
    model = {"_target_": "accelsweep.workloads.image_models.SmallCNN"}
    shape = {"steps": options.steps, "batch_size": options.batch_size}
    where = {"accelerator": options.accelerator, "threads": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(folder, model, seed, loop=loop, **shape, **where)
        run_rank(spec)
        return metric_of(read_rank_result(spec.rank_result(0)), "samples_per_second")


def rate_by_hand(options: argparse.Namespace, seed: int) -> float:
    """Return samples per second of a loop that uses nothing of accelsweep's."""
    import torch
    from torch.nn import functional

    from accelsweep.workloads.datasets import Digits
    from accelsweep.workloads.image_models import SmallCNN

    torch.set_num_threads(options.threads)
    torch.manual_seed(seed)
    device = torch.device(options.accelerator)
    network = SmallCNN().to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    data = Digits(batch_size=options.batch_size, seed=seed)
    data.setup("fit")
    batches = iter(data.train_dataloader())

    def train(steps: int) -> float:
        for _ in range(steps):
            images, classes = next(batches)
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(images.to(device)), classes.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    begin = train(WARMUP)
    seconds = train(options.steps) - begin
    return float(options.steps * options.batch_size / seconds)


def in_a_child(measure: Callable[[], float]) -> float:
    """Return the result of `measure` in a forked process; its output is dropped."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writer, repr(measure()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("a measurement failed; run it without a fork to see why")
    return float(text)


def probe_cost(rounds: int = 30, steps: int = 5000) -> list[float]:
    """Return the microseconds that a step costs in the window, the progress count and the batch's count, per round."""
    import torch

    from accelsweep.devices.cpu import CpuDevice
    from accelsweep.heartbeat import StepCount
    from accelsweep.measure.timed_window import SingleProcess, Window, WindowRules
    from accelsweep.worker.loops.loop import extract_loss
    from accelsweep.worker.loops.sample_count import SampleCounter

    batch, output = (torch.zeros(32, 1, 8, 8), torch.zeros(32, dtype=torch.long)), {"loss": torch.zeros(())}
    rules = WindowRules(warmup_steps=2, min_steps=10 * steps, min_seconds=0.0, max_steps=10 * steps)
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            progress = StepCount(Path(folder) / "progress")
            window = Window(rules, device=CpuDevice(), group=SingleProcess(), progress=progress)
            counter = SampleCounter(32)
            window.begin()
            begin = time.perf_counter()
            for _step in range(steps):
                window.step_done(counter.count(batch, None, None), extract_loss(output).detach())
            costs.append((time.perf_counter() - begin) / steps * 1e6)
    return costs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    preload()
    kinds: dict[str, Callable[[int], float]] = {
        "by hand": lambda seed: rate_by_hand(options, seed),
        "raw": lambda seed: our_rate(options, "raw", seed),
        "lightning": lambda seed: our_rate(options, "lightning", seed),
    }
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    order = random.Random(1)
    for pair in range(options.pairs):
        for kind in order.sample(list(kinds), len(kinds)):
            rates[kind].append(in_a_child(lambda kind=kind, seed=pair + 1: kinds[kind](seed)))  # type: ignore[misc]
    report(options, rates)


def report(options: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    """Print the ratio, Lightning's cost and the probe's cost, each with its 90 % interval."""
    logs = [math.log(ours / hand) for ours, hand in zip(rates["raw"], rates["by hand"], strict=True)]
    ratio, low, high = (math.exp(value) for value in interval(logs, 0.9))
    verdict = "within" if BAND[0] <= low and high <= BAND[1] else "inconclusive: not shown to lie within"
    print(f"{options.pairs} pairs of {options.steps} steps, batch {options.batch_size}, {options.accelerator}")
    for kind, values in rates.items():
        print(f"  {kind:10} median {statistics.median(values):10.0f} samples/s")
    print(f"ours / by hand: {ratio:.4f}, 90 % interval {low:.4f} to {high:.4f}: {verdict} {BAND[0]}-{BAND[1]}")
    seconds = {kind: [options.batch_size / rate for rate in values] for kind, values in rates.items()}
    extra = [1e6 * (slow - bare) for slow, bare in zip(seconds["lightning"], seconds["raw"], strict=True)]
    print("Lightning's cost: {:.0f} us per step, 90 % interval {:.0f} to {:.0f}".format(*interval(extra, 0.9)))
    print("the probe's cost: {:.2f} us per step, 90 % interval {:.2f} to {:.2f}".format(*interval(probe_cost(), 0.9)))


if __name__ == "__main__":
    main()

"""Planning a large grid, against composing each of its settings through Hydra.

Plans `--settings` settings (make_plan, then write_plan, in a temporary folder). Then composes a sample of the same
settings through Hydra one by one, as its sweeper would. Asserts that the configs are equal, and extrapolates. Both
halves run in one process on the same machine. Prints the ratio with the sample's spread, and the memory above the
imports. Seconds are processor time, which others on the machine lengthen least.

With `--added` one axis is a key that no config has, as in `+model.note=range(0,25)`.

    python benchmarks/plan.py [--settings 10000] [--sample 200] [--added]
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import cast

from omegaconf import OmegaConf

from accelsweep.config.hydra import Composer
from accelsweep.config.setting import scientific, setting_name
from accelsweep.installation import config_folders
from accelsweep.planning.plan import make_plan, write_plan


def grid(settings: int, *, added: bool = False) -> list[str]:
    """Return overrides of about `settings` settings: config groups, and plain values that other keys may refer to.

    The last axis is the longest: a key of the shipped models, or one that is `added` to them.
    """
    widths = max(1, settings // (2 * 2 * 2 * 25))
    return [
        "accelerator=cpu",
        "model=mlp,small_cnn",
        "optimizer=sgd,adamw",
        "precision=32-true,bf16-mixed",
        "batch_size=range(8,208,8)",
        f"{'+model.note' if added else 'model.width'}=range(1,{widths + 1})",
    ]


def peak_mib() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compose_through_hydra(home: Path, overrides: list[str], sample: int) -> dict[str, tuple[float, dict[str, object]]]:
    """Compose a seeded sample of the grid's jobs; return seconds and config by setting name."""
    composer = Composer(config_folders(home))
    jobs = composer.grid(composer.master(overrides)).jobs
    composed = {}
    for job in random.Random(0).sample(jobs, min(sample, len(jobs))):
        begin = time.process_time()
        config = composer.compose(job)
        ours = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        plain = cast("dict[str, object]", OmegaConf.to_container(ours, resolve=True))
        seconds = time.process_time() - begin
        composed[setting_name(plain)] = (seconds, scientific(plain))
    return composed


def main() -> None:
    """Run both halves and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--settings", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--added", action="store_true")
    options = parser.parse_args()
    overrides = grid(options.settings, added=options.added)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_plan(home, ["accelerator=cpu"])
        before = peak_mib()
        begin = time.process_time()
        plan = make_plan(home, overrides)
        made = time.process_time()
        planning_mib = peak_mib() - before
        write_plan(home, plan)
        written = time.process_time()
        writing_mib = peak_mib() - before
        composed = compose_through_hydra(home, overrides, options.sample)
    settings = {setting.name: setting.config.raw for setting in plan.settings}
    for name, (_, config) in composed.items():
        assert settings[name] == config, f"setting {name} differs from what Hydra composes"
    seconds = [each for each, _ in composed.values()]
    mean, error = statistics.fmean(seconds), statistics.stdev(seconds) / len(seconds) ** 0.5
    through_hydra = mean * len(settings)
    print(f"settings                       {len(settings)} (3 repeats, {len(plan.new_blocks)} blocks)")
    print(f"make_plan                      {made - begin:.2f} s, {planning_mib:.0f} MiB above the imports")
    print(f"write_plan                     {written - made:.2f} s, {writing_mib:.0f} MiB above the imports")
    print(f"Hydra, {len(composed)} settings sampled    {1000 * mean:.1f} +- {1000 * error:.1f} ms each; equal configs")
    print(f"Hydra, all settings, extrapolated {through_hydra:.0f} s")
    print(f"ratio                          {through_hydra / (made - begin):.0f}x (make_plan), aim 20x")
    print(f"                               {through_hydra / (written - begin):.0f}x (make_plan and write_plan)")


if __name__ == "__main__":
    main()

"""Cells and commands in the words of the advice."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from accelsweep.analyse.findings.pareto import memory_of_all, value_of
from accelsweep.base.digits import UNKNOWN, ratio_words, says_nothing
from accelsweep.core.findings import CellFinding, Estimate
from accelsweep.core.plans import Manifest
from accelsweep.core.settings import Site

_SAID = ("accelerator", "devices", "num_nodes", "precision", "batch_size")


def setting(cell: CellFinding) -> str:
    """Return how a cell trains: `on 1x NVIDIA H100 in bf16-mixed at batch 256, model.width=64`."""
    batch = cell.effective.get("batch_size", cell.axes.get("batch_size"))
    precision = cell.effective.get("precision", cell.axes.get("precision"))
    rest = [f"{key}={value}" for key, value in cell.axes.items() if key not in _SAID]
    parts = [f"on {place(cell.effective, cell.axes)}"]
    parts += [f"in {precision}"] if precision is not None else []
    parts += [f"at batch {batch}"] if batch is not None else []
    return ", ".join([" ".join(parts), *rest])


def verb(cell: CellFinding) -> str:
    """Return the verb for a cell's task, as an order: `Train`, `Predict` or `Compute`."""
    return {"inference": "Predict", "kernels": "Compute"}.get(str(cell.effective.get("loop")), "Train")


def place(effective: Mapping[str, Any], axes: Mapping[str, Any]) -> str:
    """Return the devices in words: `2x NVIDIA H100`, or `2 CPU processes (AMD EPYC 9654)`."""
    count = effective.get("world_size", axes.get("devices", 1))
    names = effective.get("device_names") or ()
    if effective.get("accelerator", axes.get("accelerator")) == "cpu":
        return f"{count} CPU process{'es' if count != 1 else ''}" + (f" ({names[0]})" if names else "")
    return f"{count}x {names[0] if names else axes.get('accelerator', 'device')}"


def against_baseline(ratio: Estimate) -> str:
    """Return a ratio of rates in words, wide ones too: `2.1x [2.0, 2.2] the rate of your baseline`."""
    if ratio.low is None or ratio.high is None or not says_nothing(ratio.low, ratio.high):
        return f"{ratio_words(ratio.value, ratio.low, ratio.high)} the rate of your baseline"
    if ratio.low <= 1.0 <= ratio.high:
        return f"its rate beside that of your baseline is {UNKNOWN}"
    return f"{'faster' if ratio.low > 1.0 else 'slower'} than your baseline, by how much is {UNKNOWN}"


def memory(cell: CellFinding, site: Site) -> str | None:
    """Return the peak memory of a cell, as a share of the device's if the inventory states that, or None."""
    name = memory_of_all([cell])
    used = value_of(cell, name) if name is not None else None
    if used is None:
        return None
    accelerator, models = cell.effective.get("accelerator"), cell.effective.get("device_names") or ()
    fitting = [d for d in site.inventory if d.accelerator == accelerator and (not models or d.model in models)]
    if len(fitting) == 1 and fitting[0].memory_bytes:
        return f"memory {100.0 * used / fitting[0].memory_bytes:.2g} %"
    return f"memory {used / 2**20:,.0f} MiB"


def more_blocks(manifest: Manifest, added: int) -> str | None:
    """Return the command line that adds so many blocks to this sweep; None for 0.

    A pilot continues by itself. After its noise has decided the number of blocks, the user gives the number of further
    blocks.
    """
    if not added or manifest.settings.pilot:
        return command(manifest) if added else None
    if manifest.settings.auto_repeats:
        return f"{command(manifest)} repeats={manifest.settings.repeats + added}"
    return f"{command(manifest)} --add-repeats {added}"


def command(manifest: Manifest) -> str:
    """Return the command line that makes this sweep go on, to paste."""
    own = (manifest.experiment or "").replace("/", "-")
    named = [] if manifest.sweep == own else ["--name", manifest.sweep]
    submitted = ["--profile", "slurm"] if manifest.site.scheduler == "slurm" else []
    return shlex.join(["accelsweep", "run", *manifest.overrides, *named, *submitted])

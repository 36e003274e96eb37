"""The timed part of a run: a window over a loop, what every rank saw put together, and the settings read back."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from accelsweep.core.record import Doubt, Effective, Metric
from accelsweep.execute.loops import Loop
from accelsweep.execute.process import Place
from accelsweep.execute.spec import RunSpec
from accelsweep.measure import doubts
from accelsweep.measure.cpu_use import CpuUse, foreign_cores
from accelsweep.measure.device_state import DeviceWatch
from accelsweep.measure.energy import GpuEnergy, PackageEnergy, energy_metrics
from accelsweep.measure.group import group_of
from accelsweep.measure.losses import first_not_finite
from accelsweep.measure.memory import RankMemory, memory_metrics, rank_memory
from accelsweep.measure.rates import rate_metrics
from accelsweep.measure.window import Probe, RankWindow, Window, WindowRules

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


@dataclass(frozen=True)
class Measurement:
    """The window of this rank and what was concluded from all ranks' windows.

    `states` holds this rank's device as the window `opened` and `closed`; it is empty where no device can be asked.
    """

    window: RankWindow
    metrics: dict[str, Metric]
    effective: Effective
    doubts: tuple[Doubt, ...]
    diverged_at: int | None
    states: dict[str, dict[str, Any]]


def measure(spec: RunSpec, loop: Loop, place: Place, progress: Callable[[int], object] | None) -> Measurement:
    """Train through the window. Raises what the user's code raises."""
    from accelsweep.measure.device import measured_device

    rules = WindowRules.from_config(spec.config["measure"], loop.accumulate)
    cpu, energy = CpuUse(), _energy_probes(loop.device, place)
    watches = [DeviceWatch(uuid) for uuid in device_uuids(loop.device)]
    probes: list[Probe] = [*watches, *energy.values(), cpu]
    group = group_of(spec.world_size)
    window = Window(rules, device=measured_device(loop.device), group=group, probes=probes, progress=progress)
    loop.train(window)
    seen = window.result()
    ranks = group.gather(
        {
            "seconds": seen.seconds,
            "samples": seen.samples,
            "diverged_at": first_not_finite(seen.losses),
            "memory": asdict(rank_memory(loop.device)),
            "energy": {name: [probe.joules, probe.reason] for name, probe in energy.items()},
            "cpu": cpu.reading,
            "device": _name(loop.device),
        }
    )
    states = watches[0].states if watches else {}
    return _conclude(spec, loop, seen, ranks, place, states)


def _energy_probes(device: torch.device, place: Place) -> dict[str, GpuEnergy | PackageEnergy]:
    probes: dict[str, GpuEnergy | PackageEnergy] = {}
    if device.type == "cuda":
        probes["gpu"] = GpuEnergy(device_uuids(device)[0])
    if place.local_rank == 0:
        probes["package"] = PackageEnergy()
    return probes


def device_uuids(device: torch.device) -> tuple[str, ...]:
    """Return the UUID of a CUDA device, by which NVML knows it too; nothing for other devices."""
    import torch

    return (str(torch.cuda.get_device_properties(device).uuid),) if device.type == "cuda" else ()


def _name(device: torch.device) -> str:
    from accelsweep.measure.device import device_name

    return device_name(device)


def _conclude(
    spec: RunSpec,
    loop: Loop,
    seen: RankWindow,
    ranks: list[dict[str, Any]],
    place: Place,
    states: dict[str, dict[str, Any]],
) -> Measurement:
    rates = rate_metrics(seen, [rank["seconds"] for rank in ranks], [rank["samples"] for rank in ranks])
    foreign = foreign_cores([rank["cpu"] for rank in ranks[: place.local_size]])
    boundaries = sum(seen.warmup_steps < end < len(seen.step_seconds) for end in loop.epoch_ends)
    bad = [rank["diverged_at"] for rank in ranks if rank["diverged_at"] is not None]
    metrics = {
        **rates,
        **memory_metrics([RankMemory(**rank["memory"]) for rank in ranks]),
        **energy_metrics(loop.device.type, [rank["energy"] for rank in ranks], max(rank["seconds"] for rank in ranks)),
        "foreign_cpu_cores": _foreign_metric(foreign),
        "epoch_ends_in_window": Metric(value=float(boundaries), unit="epochs", scope="rank 0"),
        "final_train_loss": _final_loss(seen.losses),
    }
    found = [
        doubts.short_window(seen_seconds=rates["window_seconds"].value or 0.0, rules=spec.config["measure"]),
        doubts.unsteady(seen.window_step_seconds),
        doubts.busy_cpu(foreign, sum(rank["cpu"]["ours"] / rank["cpu"]["seconds"] for rank in ranks)),
        doubts.swapping(sum(rank["cpu"]["swapped_bytes"] for rank in ranks[:1])),
        doubts.epoch_boundary(boundaries),
    ]
    effective = _effective(spec, loop, seen, ranks)
    said = tuple(filter(None, found)) if place.rank == 0 else ()
    return Measurement(seen, metrics, effective, said, min(bad) if bad else None, states)


def _foreign_metric(foreign: float | None) -> Metric:
    if foreign is None:
        return Metric(value=None, unit="cores", reason="the machine's processor time cannot be read here", scope="host")
    return Metric(value=foreign, unit="cores", scope="host, other processes", provenance="counter")


def _final_loss(losses: list[float | None]) -> Metric:
    last = losses[-1]
    if last is None or not math.isfinite(last):
        reason = "the training step gave no loss" if last is None else f"the loss was {last}"
        return Metric(value=None, unit="loss", reason=reason, scope="rank 0")
    return Metric(value=last, unit="loss", scope="rank 0, last step of the window")


def _effective(spec: RunSpec, loop: Loop, seen: RankWindow, ranks: list[dict[str, Any]]) -> Effective:
    import torch

    batch = seen.step_samples[0]
    return Effective(
        accelerator=loop.device.type,
        device_names=tuple(rank["device"] for rank in ranks),
        world_size=len(ranks),
        num_nodes=int(spec.config["num_nodes"]),
        precision=loop.precision,
        strategy=loop.strategy,
        loop=str(spec.config["loop"]),
        launcher=str(spec.config.get("launcher", "fork")),
        threads_per_rank=torch.get_num_threads(),
        batch_size=batch,
        global_batch_size=batch * len(ranks) * loop.accumulate,
        warmup_steps=seen.warmup_steps,
        window_steps=len(seen.window_step_seconds),
        optimizer=loop.optimizer,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        matmul_precision=torch.get_float32_matmul_precision(),
    )

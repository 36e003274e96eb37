"""The timed part of a run: a window over steps, the measurements of all ranks together, and the settings read back."""

from __future__ import annotations

import sys
import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from accelsweep.measure import run_doubts
from accelsweep.measure.energy import GpuEnergy, PackageEnergy, energy_metrics
from accelsweep.measure.machine_state import CpuUse, DeviceWatch, foreign_cores
from accelsweep.measure.memory import MemoryWatch, RankMemory, kinds_of, memory_metrics, rank_memory
from accelsweep.measure.stalls import OurWork, RankStalls, find_stalls
from accelsweep.measure.window import Probe, RankWindow, Window, WindowRules, first_not_finite, group_of, rate_metrics
from accelsweep.metrics import Metric
from accelsweep.results import Breakdown, Doubt, Effective, ErrorKind, Outcome, RankResult, Traits
from accelsweep.run_environment import Surroundings
from accelsweep.significant_digits import significant
from accelsweep.worker.errors import OUTCOME_OF, classify, place_of, reason_of, traceback_of
from accelsweep.worker.loops.loop import Driver
from accelsweep.worker.loops.sample_count import usual
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch


@dataclass(frozen=True)
class Measurement:
    """The window of this rank and the conclusions from all ranks' windows.

    `states` holds this rank's device as the window `opened` and `closed`; it is empty where no device can be asked.
    """

    window: RankWindow
    metrics: dict[str, Metric]
    effective: Effective
    doubts: tuple[Doubt, ...]
    diverged_at: int | None
    states: dict[str, dict[str, Any]]


def measure(spec: RunSpec, driver: Driver, place: RankPlace, progress: Callable[[int], object] | None) -> Measurement:
    """Drive steps through the window. Raises the errors of the user's code."""
    from accelsweep.devices.kinds import timed_device

    rules = WindowRules.from_config(spec.config.measure, driver.accumulate)
    cpu, energy = CpuUse(), _energy_probes(driver.device, place)
    watches = [DeviceWatch(one, driver.device.type) for one in identities(driver.device)]
    work = OurWork()
    probes: list[Probe] = [*watches, *energy.values(), cpu, work]

    def step_done(done: int) -> None:
        work.step_done(done - rules.warmup)
        if progress is not None:
            progress(done)

    group = group_of(spec.world_size)
    device, watch = timed_device(driver.device), MemoryWatch(kinds_of(driver.device))
    window = Window(rules, device=device, group=group, probes=probes, watch=watch, progress=step_done)
    driver.drive(window)
    seen = window.result()
    restarts = [end - seen.warmup_steps for end in driver.epoch_ends]
    stalls = find_stalls(seen.window_step_seconds, seen.seconds, restarts, driver.accumulate)
    ranks = group.gather(
        {
            "seconds": seen.seconds,
            "samples": seen.samples,
            "stalls": asdict(work.during(stalls)),
            "diverged_at": first_not_finite(seen.losses),
            "memory": asdict(rank_memory(driver.device)),
            "grown": watch.grown(),
            "energy": {name: [probe.joules, probe.reason] for name, probe in energy.items()},
            "cpu": cpu.reading,
            "device": _name(driver.device),
        }
    )
    states = watches[0].states if watches else {}
    return _conclude(spec, driver, seen, ranks, place, states)


def _energy_probes(device: torch.device, place: RankPlace) -> dict[str, GpuEnergy | PackageEnergy]:
    probes: dict[str, GpuEnergy | PackageEnergy] = {}
    for identity in identities(device):
        probes["gpu"] = GpuEnergy(identity, device.type)
    if place.local_rank == 0:
        probes["package"] = PackageEnergy()
    return probes


def identities(device: torch.device) -> tuple[str, ...]:
    """Return the name by which the driver knows the device; nothing where no driver is asked about it."""
    from accelsweep.devices.kinds import kind_of

    found = kind_of(device.type).telemetry_identity(device)
    return () if found is None else (found,)


def _name(device: torch.device) -> str:
    from accelsweep.devices.kinds import device_name

    return device_name(device)


def _conclude(
    spec: RunSpec,
    driver: Driver,
    seen: RankWindow,
    ranks: list[dict[str, Any]],
    place: RankPlace,
    states: dict[str, dict[str, Any]],
) -> Measurement:
    stalls = [RankStalls(**rank["stalls"]) for rank in ranks]
    rates = rate_metrics(seen, [rank["seconds"] for rank in ranks], [rank["samples"] for rank in ranks], stalls)
    whole, without = (rates[name].value or 0.0 for name in ("window_seconds", "samples_per_second_without_stalls"))
    cpu = [rank["cpu"] for rank in ranks]
    boundaries = sum(seen.warmup_steps <= end < len(seen.step_seconds) for end in driver.epoch_ends)
    bad = [rank["diverged_at"] for rank in ranks if rank["diverged_at"] is not None]
    metrics = {
        **rates,
        **memory_metrics([RankMemory(**rank["memory"]) for rank in ranks]),
        **energy_metrics(
            driver.device.type, [rank["energy"] for rank in ranks], max(rank["seconds"] for rank in ranks)
        ),
        "foreign_cpu_cores": _foreign_metric(foreign_cores(cpu[: place.local_size])),
        "epoch_ends_in_window": Metric(value=float(boundaries), unit="epochs", scope="rank 0"),
    }
    found = [
        run_doubts.short_window(seen_seconds=whole, asked=spec.config.measure.min_seconds),
        run_doubts.unsteady(seen.window_step_seconds),
        run_doubts.stalled(stalls, whole, f"the rate is {significant(without)} samples/s", "the window"),
        *machine_doubts(cpu, place.local_size),
        run_doubts.memory_grows(fastest_growth([rank["grown"] for rank in ranks])),
        run_doubts.epoch_boundary(boundaries),
    ]
    together = seen.step_samples[0] * len(ranks)
    held = None if driver.optimizer_steps is None else driver.optimizer_steps.held(seen.warmup_steps)
    per_step = 1 if held is None else usual(held)
    if held is not None:
        found.append(run_doubts.optimizer_batch(held, driver.accumulate, per_step, together))
    effective = _effective(spec, driver, seen, ranks, None if per_step is None else together * per_step)
    said = tuple(filter(None, found)) if place.rank == 0 else ()
    return Measurement(seen, metrics, effective, said, min(bad) if bad else None, states)


def machine_doubts(cpu: list[dict[str, float]], local_size: int) -> list[Doubt | None]:
    """Return the doubts about processors, swap, page faults and sleep, given every rank's `CpuUse.reading`.

    The processors are those of rank 0's node, on which the first `local_size` ranks are.
    """
    here = cpu[:local_size]
    return [
        run_doubts.busy_cpu(foreign_cores(here), sum(reading["ours"] / reading["seconds"] for reading in here)),
        run_doubts.swapping(max(reading["swapped_bytes"] for reading in cpu)),
        run_doubts.page_faults(*max((reading["major_faults"], reading["seconds"]) for reading in cpu)),
        run_doubts.clock_gap(max(reading["clock_gap"] for reading in cpu)),
    ]


def fastest_growth(ranks: list[dict[str, tuple[int, int]]]) -> tuple[str, int, int] | None:
    """Return where memory grew the most, with bytes and steps, given every rank's `MemoryWatch.grown`."""
    found = [(place, grown, steps) for rank in ranks for place, (grown, steps) in rank.items()]
    return max(found, key=lambda one: one[1], default=None)


def _foreign_metric(foreign: float | None) -> Metric:
    scope = "the cores that rank 0 may use, other processes"
    if foreign is None:
        return Metric(value=None, unit="cores", reason="these cores' processor time cannot be read here", scope=scope)
    return Metric(value=foreign, unit="cores", scope=scope, provenance="counter")


def _effective(
    spec: RunSpec, driver: Driver, seen: RankWindow, ranks: list[dict[str, Any]], global_batch: int | None
) -> Effective:
    import torch

    return Effective(
        accelerator=driver.device.type,
        device_names=tuple(rank["device"] for rank in ranks),
        world_size=len(ranks),
        num_nodes=spec.config.num_nodes,
        precision=driver.precision,
        strategy=driver.strategy,
        loop=driver.name,
        launcher=spec.config.launcher,
        threads_per_rank=torch.get_num_threads(),
        batch_size=seen.step_samples[0],
        global_batch_size=global_batch,
        warmup_steps=seen.warmup_steps,
        window_steps=len(seen.window_step_seconds),
        optimizer=driver.optimizer,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        matmul_precision=torch.get_float32_matmul_precision(),
    )


# A rank's account of its run so far. Whatever interrupts the run, this much is recorded.


class Account:
    """The parts of a rank's result, each filled in as soon as it is known."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.metrics: dict[str, Metric] = {}
        self.environment: dict[str, dict[str, Any]] = {}
        self.effective: Effective | None = None
        self.doubts: list[Doubt] = []
        self.breakdown: Breakdown | None = None
        self.traits: Traits | str | None = None
        self.extra: dict[str, Any] | None = None
        self._error: BaseException | None = None
        self._target: str | None = None
        self._survived: Collection[ErrorKind] = ()

    def window_closed(self, measured: Measurement) -> None:
        """Keep the measurements of the window. `environment` holds the state before and after it."""
        self.effective = measured.effective
        self.metrics |= measured.metrics
        self.environment |= measured.states
        seen = Surroundings(self.environment)
        changes = run_doubts.between(*seen.around_the_window)
        clocks = run_doubts.governor(seen.before.governor)
        self.doubts += [*measured.doubts, *changes, *([clocks] if clocks else [])]

    def rate_survives(self, failures: Collection[ErrorKind]) -> None:
        """Let what was measured so far stand, whichever of these `failures` follows."""
        self._survived = failures

    def failed(self, error: BaseException, target: str | None = None) -> None:
        """Keep the error and show it; `target` is the column of the classes, where the data has columns."""
        self._error, self._target = error, target
        traceback.print_exception(error, file=sys.stderr)

    def result(self, rank: int) -> RankResult:
        """Return all of it as the rank's document."""
        error = self._error
        kind = "none" if error is None else classify(error)
        return RankResult(
            rank=rank,
            outcome=Outcome.measured if error is None else OUTCOME_OF[kind],
            reason=None if error is None else reason_of(error, self._target),
            error_kind=kind,
            traceback=None if error is None else traceback_of(error),
            rate_stands=kind in self._survived,
            place=None if error is None else place_of(error),
            effective=self.effective,
            metrics=self.metrics,
            environment=self.environment,
            doubts=tuple(self.doubts),
            breakdown=self.breakdown,
            traits=self.traits,
            extra=self.extra,
        )

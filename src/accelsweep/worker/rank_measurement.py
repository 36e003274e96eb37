"""Measures a run: drives steps through the timed window, combines the ranks' readings and reads back the settings."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from accelsweep.devices.clock import monotonic
from accelsweep.errors import InputError
from accelsweep.measure import run_doubts
from accelsweep.measure.compilation import CompileWatch, compilation_metrics
from accelsweep.measure.energy import GpuEnergy, PackageEnergy, energy_metrics
from accelsweep.measure.machine_state import CpuUse, DeviceWatch, foreign_cores
from accelsweep.measure.memory import ClosingMemory, MemoryWatch, RankMemory, memory_metrics, memory_readers
from accelsweep.measure.stalls import CpuTimer, RankStalls, find_stalls
from accelsweep.measure.timed_window import (
    Probe,
    RankWindow,
    Window,
    WindowRules,
    first_not_finite,
    group_of,
    rate_metrics,
)
from accelsweep.metrics import Metric
from accelsweep.results import (
    Breakdown,
    Doubt,
    Effective,
    ErrorKind,
    LearningCurve,
    Outcome,
    RankResult,
    ScriptTrainer,
    Traits,
)
from accelsweep.run_config import SettingConfig
from accelsweep.run_environment import RunEnvironment
from accelsweep.significant_digits import significant
from accelsweep.worker.error_classification import OUTCOMES, classify, reason_of, traceback_of, user_location
from accelsweep.worker.loops.loop import Driver
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import torch

    from accelsweep.worker.loops.token_count import TokenCounter


@dataclass(frozen=True)
class Measurement:
    """The window on this rank and the results of all ranks.

    `states` maps `opened` and `closed` to the state of this rank's device when the window opened and closed; it is
    empty if the device has no telemetry. `doubts` are only collected on rank 0.
    """

    window: RankWindow
    metrics: dict[str, Metric]
    effective: Effective
    doubts: tuple[Doubt, ...]
    diverged_at: int | None
    states: dict[str, dict[str, Any]]


def measure(spec: RunSpec, driver: Driver, place: RankPlace, progress: Callable[[int], object] | None) -> Measurement:
    """Drive steps through the window and combine the readings of all ranks. Raises errors from the user's code.

    `progress`, if given, is called with the number of finished steps after each step.
    """
    from accelsweep.devices.kinds import device_name, timed_device

    rules = WindowRules.from_config(spec.config.measure, driver.accumulate)
    identities = telemetry_identities(driver.device)
    energy: dict[str, GpuEnergy | PackageEnergy] = {}
    for identity in identities:
        energy["gpu"] = GpuEnergy(identity, driver.device.type)
    if place.local_rank == 0:
        energy["package"] = PackageEnergy()
    watches = [DeviceWatch(identity, driver.device.type) for identity in identities]
    closing_memory, cpu, timer, compiling = ClosingMemory(driver.device), CpuUse(), CpuTimer(), CompileWatch()
    probes: list[Probe] = [compiling, closing_memory, *watches, *energy.values(), cpu, timer]

    def step_done(done: int) -> None:
        timer.step_done(done - window.warmup_steps)
        if progress is not None:
            progress(done)

    group = group_of(spec.world_size)
    device, memory = timed_device(driver.device), MemoryWatch(memory_readers(driver.device))
    window = Window(rules, device=device, group=group, probes=probes, memory=memory, progress=step_done)
    driver.drive(window)
    result = window.result()
    assert closing_memory.reading is not None, "a window with a result has closed"
    restarts = [end - result.warmup_steps for end in driver.epoch_ends]
    stalls = find_stalls(result.window_step_seconds, result.seconds, restarts, driver.accumulate)
    ranks = group.gather(
        {
            "seconds": result.seconds,
            "samples": result.samples,
            "stalls": asdict(timer.summarise(stalls)),
            "diverged_at": first_not_finite(result.losses),
            "memory": asdict(closing_memory.reading),
            "growth": memory.growth(),
            "energy": {name: [probe.joules, probe.reason] for name, probe in energy.items()},
            "cpu": cpu.reading,
            "tokens": _tokens_in(spec.config, driver, result),
            "device": device_name(driver.device),
        }
    )
    measured = _combine(spec, driver, result, ranks, place, watches[0].states if watches else {})
    return _with_execution(spec, driver, compiling, measured)


def _with_execution(spec: RunSpec, driver: Driver, compiling: CompileWatch, measured: Measurement) -> Measurement:
    """Add what this rank has compiled, and how it executed the modules."""
    metrics, execution = compilation_metrics(compiling), driver.execution
    recompilations = compiling.recompilations
    doubts = [
        run_doubts.recompiled(recompilations.count, recompilations.reasons),
        run_doubts.other_matmul_precision(spec.config.matmul_precision, measured.effective.matmul_precision),
    ]
    effective = measured.effective
    if execution is not None:
        effective = replace(effective, compiled=execution.compiled, checkpointed_modules=execution.checkpoints)
        if (layout := execution.layout_metric()) is not None:
            metrics["channels_last_share"] = layout
    return replace(
        measured,
        metrics={**measured.metrics, **metrics},
        effective=effective,
        doubts=(*measured.doubts, *filter(None, doubts)),
    )


def telemetry_identities(device: torch.device) -> tuple[str, ...]:
    """Return the identity that the driver's telemetry uses for the device; an empty tuple if there is no telemetry."""
    from accelsweep.devices.kinds import kind_of

    identity = kind_of(device.type).telemetry_identity(device)
    return () if identity is None else (identity,)


def _combine(
    spec: RunSpec,
    driver: Driver,
    window: RankWindow,
    ranks: list[dict[str, Any]],
    place: RankPlace,
    states: dict[str, dict[str, Any]],
) -> Measurement:
    from accelsweep.worker.loops.sample_count import usual_batches_per_step

    stalls = [RankStalls(**rank["stalls"]) for rank in ranks]
    seconds, cpu = [rank["seconds"] for rank in ranks], [rank["cpu"] for rank in ranks]
    rates = rate_metrics(window, seconds, [rank["samples"] for rank in ranks], stalls)
    epoch_ends = sum(window.warmup_steps <= end < len(window.step_seconds) for end in driver.epoch_ends)
    diverged = [rank["diverged_at"] for rank in ranks if rank["diverged_at"] is not None]
    metrics = {
        **rates,
        **memory_metrics([RankMemory(**rank["memory"]) for rank in ranks]),
        **energy_metrics(driver.device.type, [rank["energy"] for rank in ranks], max(seconds)),
        **token_metrics([rank["tokens"] for rank in ranks], max(seconds), driver.tokens),
        "foreign_cpu_cores": foreign_cores_metric(cpu[: place.local_size]),
        "epoch_ends_in_window": Metric(value=float(epoch_ends), unit="epochs", scope="rank 0"),
    }
    samples = window.step_samples[0] * len(ranks)
    counts = None if driver.optimizer_steps is None else driver.optimizer_steps.batch_counts(window.warmup_steps)
    per_step = 1 if counts is None else usual_batches_per_step(counts)
    effective = _effective(spec, driver, window, ranks, None if per_step is None else samples * per_step)
    doubts: list[Doubt | None] = []
    if place.rank == 0:
        rate = rates["samples_per_second_without_stalls"].value or 0.0
        doubts = [
            run_doubts.short_window(max(seconds), len(window.window_step_seconds), spec.config.measure),
            run_doubts.unsteady(window.window_step_seconds),
            run_doubts.stalled(stalls, max(seconds), f"the rate is {significant(rate)} samples/s", "the window"),
            *cpu_doubts(cpu, place.local_size),
            run_doubts.memory_grows(fastest_growth([rank["growth"] for rank in ranks])),
            run_doubts.epoch_boundary(epoch_ends),
        ]
        if counts is not None:
            doubts.append(run_doubts.optimizer_batch(counts, driver.accumulate, per_step, samples))
    return Measurement(window, metrics, effective, tuple(filter(None, doubts)), min(diverged, default=None), states)


def _tokens_in(config: SettingConfig, driver: Driver, window: RankWindow) -> float | None:
    """Return the tokens of this rank's steps in the window; None if the batches do not show them.

    Raises InputError if a batch has more tokens than its budget.
    """
    known = driver.tokens is not None and driver.tokens.known
    if config.batch_unit == "tokens" and not known:
        raise InputError("batch_unit=tokens: the batches show no tokens: define tokens(self, batch) in the module")
    if driver.tokens is None or not known:
        return None
    steps = driver.tokens.steps()
    most = max(steps, default=0.0) / driver.accumulate
    if config.batch_unit == "tokens" and most > config.batch_size:
        raise InputError(f"batch_unit=tokens: a batch has {most:g} tokens, but its budget is {config.batch_size}")
    return sum(steps[window.warmup_steps :])


def token_metrics(ranks: Sequence[float | None], seconds: float, counter: TokenCounter | None) -> dict[str, Metric]:
    """Return the tokens of all ranks in a window of the slowest rank's `seconds`; empty if they are not known."""
    counted = [tokens for tokens in ranks if tokens is not None]
    if counter is None or len(counted) < len(ranks):
        return {}
    scope = f"all ranks, {counter.unit}"
    return {
        "tokens_per_second": Metric(value=sum(counted) / seconds, unit="1/s", scope=scope, provenance="clock"),
        "window_tokens": Metric(value=sum(counted), unit="tokens", scope=scope, provenance="counter"),
    }


def cpu_doubts(cpu: list[dict[str, float]], local_size: int) -> list[Doubt | None]:
    """Return the doubts about foreign load, swapping, page faults and suspend, given every rank's `CpuUse.reading`.

    The load is measured on rank 0's node, which runs the first `local_size` ranks.
    """
    node = cpu[:local_size]
    return [
        run_doubts.busy_cpu(foreign_cores(node), sum(reading["ours"] / reading["seconds"] for reading in node)),
        run_doubts.swapping(max(reading["swapped_bytes"] for reading in cpu)),
        run_doubts.page_faults(*max((reading["major_faults"], reading["seconds"]) for reading in cpu)),
        run_doubts.clock_gap(max(reading["clock_gap"] for reading in cpu)),
    ]


def fastest_growth(ranks: list[dict[str, tuple[int, int]]]) -> tuple[str, int, int] | None:
    """Return the kind of memory that grew most, its growth in bytes, and the number of steps over which it grew.

    `ranks` contains the result of `MemoryWatch.growth` on every rank.
    """
    growth = [(name, grown, steps) for rank in ranks for name, (grown, steps) in rank.items()]
    return max(growth, key=lambda entry: entry[1], default=None)


def foreign_cores_metric(node: list[dict[str, float]]) -> Metric:
    """Return the load of other processes on a node, given `CpuUse.reading` of each of its ranks."""
    cores = foreign_cores(node)
    scope = "other processes on the cores that rank 0 may use"
    if cores is None:
        return Metric(value=None, unit="cores", reason="the CPU time of these cores cannot be read here", scope=scope)
    return Metric(value=cores, unit="cores", scope=scope, provenance="counter")


def _effective(
    spec: RunSpec, driver: Driver, window: RankWindow, ranks: list[dict[str, Any]], global_batch: int | None
) -> Effective:
    import torch

    from accelsweep.measure.flops import float32_matmul_precision

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
        batch_size=window.step_samples[0],
        global_batch_size=global_batch,
        warmup_steps=window.warmup_steps,
        window_steps=len(window.window_step_seconds),
        optimizer=driver.optimizer,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        matmul_precision=float32_matmul_precision(),
    )


class RankReport:
    """A rank's result, filled in as parts become known, so that an interrupted run still records those parts."""

    def __init__(self) -> None:
        """Start with an empty result."""
        self.metrics: dict[str, Metric] = {}
        self.environment: dict[str, dict[str, Any]] = {}
        self.effective: Effective | None = None
        self.numa_node: int | None = None
        self.doubts: list[Doubt] = []
        self.breakdown: Breakdown | None = None
        self.traits: Traits | str | None = None
        self.extra: dict[str, Any] | None = None
        self.files: tuple[str, ...] = ()
        self.trainer: ScriptTrainer | None = None
        self.phases: dict[str, tuple[float, float]] = {}
        self.learning: LearningCurve | None = None
        self._error: BaseException | None = None
        self._target: str | None = None
        self._tolerated: Collection[ErrorKind] = ()

    def add_window(self, measured: Measurement) -> None:
        """Add the window's results. `environment` must contain the state `before` and `after` the window."""
        self.effective = replace(measured.effective, numa_node=self.numa_node)
        self.metrics |= measured.metrics
        window = measured.window
        self.phases |= {
            "warmup": (window.began_at, window.opened_at),
            "window": (window.opened_at, window.opened_at + window.seconds),
        }
        self.environment |= measured.states
        states = RunEnvironment(self.environment)
        governor = run_doubts.governor(states.before.governor)
        self.doubts += [*measured.doubts, *run_doubts.device_doubts(*states.around_the_window)]
        self.doubts += [governor] if governor else []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note when a phase begins and ends, even with an error."""
        began = monotonic()
        try:
            yield
        finally:
            self.phases[name] = began, monotonic()

    def tolerate(self, failures: Collection[ErrorKind]) -> None:
        """Keep the window's results valid if one of these `failures` occurs later."""
        self._tolerated = failures

    def record_error(self, error: BaseException, target: str | None = None) -> None:
        """Record `error` and print its traceback; `target` is the class column of a table."""
        self._error, self._target = error, target
        traceback.print_exception(error, file=sys.stderr)

    def result(self, rank: int) -> RankResult:
        """Return the result so far."""
        error = self._error
        kind = "none" if error is None else classify(error)
        return RankResult(
            rank=rank,
            outcome=Outcome.measured if error is None else OUTCOMES[kind],
            reason=None if error is None else reason_of(error, self._target),
            error_kind=kind,
            traceback=None if error is None else traceback_of(error),
            window_is_valid=kind in self._tolerated,
            user_location=None if error is None else user_location(error),
            effective=self.effective,
            metrics=self.metrics,
            environment=self.environment,
            doubts=tuple(self.doubts),
            breakdown=self.breakdown,
            traits=self.traits,
            extra=self.extra,
            files=self.files,
            trainer=self.trainer,
            phases=self.phases,
            learning=self.learning,
        )

"""The results of the sweep's runs as typed values in one fixed order, grouped for the analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import label
from accelsweep.config.tasks import UNIT_OF, compared_rate
from accelsweep.json_documents import canonical_json, sha256_text
from accelsweep.records.findings import Hardware, Origin
from accelsweep.records.plan import Manifest, PlannedCell
from accelsweep.records.run_environment import Checkout, HardwareKind, Surroundings
from accelsweep.records.run_record import Doubt, Effective, Outcome, Traits


class Reading(NamedTuple):
    """A metric of one run as `records.run_record.Metric` describes it; a plain tuple, because there are very many."""

    value: float | None
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None


@dataclass(frozen=True)
class RunRow:
    """A wanted run and the values of its record, or an unsupported cell (`run` is None).

    Fields are named as in `records.run_record.Record`, the parts of the fingerprint one by one. A value that only a
    record holds is empty or None where there is none. `wall_seconds` are seconds; times are UTC in ISO 8601.
    """

    sweep: str
    cell: str
    outcome: Outcome
    axes: Mapping[str, Any]
    run: str | None = None
    block: str | None = None
    repeat: int | None = None
    position: int | None = None
    attempt: int | None = None
    seed: int | None = None
    reason: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    wall_seconds: float | None = None
    config: CellConfig | None = None
    effective: Effective | None = None
    metrics: Mapping[str, Reading] = field(default_factory=dict)
    hardware: HardwareKind = field(default_factory=HardwareKind)
    software: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    record_sha256: str | None = None
    traits: Traits | str | None = None

    @property
    def recorded(self) -> bool:
        """Whether the run left a record that can be used."""
        return self.record_sha256 is not None

    def value(self, metric: str) -> float | None:
        """Return the metric's value, or None if the run was not measured or has no such value."""
        if self.outcome is not Outcome.measured or metric not in self.metrics:
            return None
        return self.metrics[metric].value

    @property
    def surroundings(self) -> Surroundings:
        """The `environment`, read by attribute."""
        return Surroundings(self.environment)

    @property
    def checkout(self) -> Checkout:
        """The `git`, read by attribute."""
        return Checkout.of(self.git)

    @property
    def machine(self) -> str | None:
        """The identity of the machine, where the record has one."""
        identity = self.surroundings.before.machine
        return str(identity) if identity is not None else None

    @property
    def node(self) -> str | None:
        """The name that the cluster has for the node; None where no cluster gave one."""
        name = self.surroundings.before.variables.get("SLURMD_NODENAME")
        return str(name) if name else None

    @property
    def host(self) -> str | None:
        """The name of the machine, where the record has it."""
        name = self.surroundings.before.host
        return str(name) if name is not None else None


def in_order(runs: Iterable[RunRow]) -> list[RunRow]:
    """Return the rows sorted by cell, repeat and block: the one order in which the analysis sees them."""
    return sorted(runs, key=lambda run: (run.cell, -1 if run.repeat is None else run.repeat, run.block or ""))


@dataclass(frozen=True)
class CellRuns:
    """The runs of one cell on one kind of hardware (`hardware` is empty where nothing ran).

    `rate_metric` names the metric that cells of this sweep are compared by.
    """

    planned: PlannedCell
    hardware: HardwareKind
    runs: tuple[RunRow, ...]
    rate_metric: str = "samples_per_second"

    @property
    def cell(self) -> str:
        """The cell's name."""
        return self.planned.name

    @property
    def label(self) -> str:
        """The cell's axes as a short text."""
        return label(self.planned.axes)

    @cached_property
    def measured(self) -> tuple[RunRow, ...]:
        """The runs that were measured. A run that missed its target counts, although it has no rate."""
        return tuple(run for run in self.runs if run.outcome is Outcome.measured)

    @cached_property
    def rated(self) -> tuple[RunRow, ...]:
        """The runs that have a rate."""
        return tuple(run for run in self.runs if self.rate(run))

    @cached_property
    def config(self) -> CellConfig | None:
        """The frozen config; None where neither a record nor a block holds it, as for cells that the plan rules out."""
        return next((run.config for run in self.runs if run.config is not None), None)

    @cached_property
    def effective(self) -> Effective | None:
        """The settings that were in force in the first measured run that states them, or None."""
        return next((run.effective for run in self.measured if run.effective is not None), None)

    @property
    def batch_size(self) -> int:
        """The batch of each rank by the config; 0 where there is no config."""
        return 0 if self.config is None else self.config.batch_size

    @cached_property
    def log_rates(self) -> dict[str, float]:
        """The natural logarithm of the rate per block."""
        return self.logs(self.rate_metric)

    @cached_property
    def blocks(self) -> frozenset[str]:
        """The blocks that this cell has a rate in."""
        return frozenset(self.log_rates)

    @property
    def rate_unit(self) -> str:
        """The unit of the rate, as the records state it."""
        readings = (run.metrics[self.rate_metric] for run in self.runs if self.rate_metric in run.metrics)
        return next((reading.unit for reading in readings), UNIT_OF.get(self.rate_metric, ""))

    def rate(self, run: RunRow) -> float | None:
        """Return the rate of one of the runs, or None."""
        return run.value(self.rate_metric)

    def logs(self, metric: str) -> dict[str, float]:
        """Return a metric's natural logarithm per block: the allocation is the unit; runs that share one are averaged.

        Runs without the metric, or with one that is not positive, are left out.
        """
        found: dict[str, list[float]] = {}
        for run in self.measured:
            if (value := run.value(metric)) is not None and value > 0:
                found.setdefault(run.block or "", []).append(math.log(value))
        return {block: math.fsum(values) / len(values) for block, values in found.items()}

    def values(self, metric: str) -> list[float]:
        """Return the metric's values over the measured runs, absent ones left out, smallest first."""
        return sorted(value for run in self.measured if (value := run.value(metric)) is not None)


def rate_metric_of(manifest: Manifest, runs: Sequence[RunRow]) -> str:
    """Return the metric that the sweep compares: `analysis.rate`, or that of the baseline's (else the first) task."""
    first = sorted(runs, key=lambda run: run.cell != manifest.baseline)
    return compared_rate(manifest.settings.analysis.rate, (run.config.work for run in first if run.config is not None))


def group(manifest: Manifest, runs: Sequence[RunRow], rate_metric: str | None = None) -> list[CellRuns]:
    """Return the runs per cell and kind of hardware, in grid order; runs without a record join the first kind.

    `rate_metric` is the metric that the cells are compared by, if it does not follow from this sweep alone.
    """
    metric = rate_metric or rate_metric_of(manifest, runs)
    kinds: dict[str, dict[HardwareKind, list[RunRow]]] = {cell.name: {} for cell in manifest.cells}
    for run in runs:
        if run.cell in kinds:
            kinds[run.cell].setdefault(run.hardware, []).append(run)
    groups = []
    for cell in manifest.cells:
        rows = kinds[cell.name]
        without_record = rows.pop(HardwareKind(), [])
        first = min(rows, key=lambda kind: kind.key, default=HardwareKind())
        rows[first] = without_record + rows.get(first, [])
        found = sorted(rows, key=lambda kind: kind.key)
        groups += [CellRuns(cell, kind, tuple(rows[kind]), metric) for kind in found]
    return groups


# The origin of the numbers: machines, software, and the digest of the records they were computed from.


def hardware_of(names: Mapping[HardwareKind, str]) -> tuple[Hardware, ...]:
    """Return the kinds of hardware that runs used, by name in alphabetical order."""
    return tuple(Hardware(name=name, details=kind.details) for kind, name in sorted(names.items(), key=lambda i: i[1]))


def environment(manifest: Manifest, runs: Iterable[RunRow]) -> dict[str, str]:
    """Return the environment of the runs: versions with build tags, system, governor; several values are joined."""
    found: dict[str, set[str]] = {name: {version} for name, version in manifest.versions.items()}
    seen: dict[str, set[str]] = {}
    for run in runs:
        for package, version in run.software.items():
            tag = run.builds.get(package)
            seen.setdefault(package, set()).add(f"{version}+{tag}" if tag else version)
        before = run.surroundings.before
        facts = {
            "system": before.system,
            "python": before.python,
            "cores_usable": before.cores_usable,
            "governor": before.governor,
        }
        for fact, value in facts.items():
            if value is not None:
                seen.setdefault(fact, set()).add(str(value))
    return {name: " and ".join(sorted(values)) for name, values in sorted((found | seen).items())}


def records_digest(runs: Iterable[RunRow]) -> str:
    """Return the SHA-256 over the names of all runs and the SHA-256 of each one's record file."""
    return sha256_text(canonical_json(sorted([run.run or run.cell, run.record_sha256 or ""] for run in runs)))


def origin_of(runs: Sequence[RunRow]) -> Origin:
    """Return model, data, machine, commit and days of the runs that were recorded."""
    known = [run for run in runs if run.recorded]
    before = [run.surroundings.before for run in known]
    changes = {run.checkout.dirty for run in known} - {None}
    days = sorted(run.started_at[:10] for run in known if run.started_at)
    return Origin(
        model=_names(run.config.model_target for run in known if run.config),
        data=_names(run.config.data_target for run in known if run.config),
        threads=tuple(sorted({int(one.cores_usable) for one in before if one.cores_usable})),
        memory_bytes=tuple(sorted({int(one.memory_bytes) for one in before if one.memory_bytes})),
        commits=tuple(sorted({short for run in known if (short := run.checkout.short)})),
        changed=any(changes) if changes else None,
        dates=tuple(dict.fromkeys((days[0], days[-1]))) if days else (),
    )


def _names(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the classes' own names, each once, in alphabetical order."""
    found: Collection[str] = {target.rpartition(".")[2] for target in targets if target}
    return tuple(sorted(found))


# Cells that differ in a few chosen keys only: the curves of scaling, of batch size, of memory.


def series(
    groups: Iterable[CellRuns], free: Collection[str], mark: Callable[[CellRuns], Any] = lambda _: None
) -> list[list[CellRuns]]:
    """Return the sets of two or more cells, on one kind of hardware, whose configs are equal but for the `free` keys.

    Cells in one set also have the same `mark`. Cells that have not run anywhere belong to none.
    """
    found: dict[tuple[HardwareKind, str], list[CellRuns]] = {}
    for group in groups:
        if group.hardware and group.config is not None:
            rest = {key: value for key, value in group.config.raw.items() if key not in free}
            found.setdefault((group.hardware, canonical_json([rest, mark(group)])), []).append(group)
    return [members for members in found.values() if len(members) > 1]


def series_label(axes: Mapping[str, Any], free: Collection[str], *suffix: str) -> str:
    """Return a short text for a series: the axes that do not vary in it, then `suffix`."""
    parts = [
        str(value)
        if key in ("accelerator", "precision")
        else f"{'batch ' if key == 'batch_size' else key + '='}{value}"
        for key, value in axes.items()
        if key not in free
    ]
    return " | ".join([*parts, *suffix]) or "all settings"


def ranks(group: CellRuns) -> int | None:
    """Return how many devices (processes on a CPU) the cell trains on over all nodes, or None if that is unknown."""
    return None if group.config is None else group.config.world_size

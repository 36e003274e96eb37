"""Defines rows with the recorded values of runs, and groups them by setting and kind of hardware for the analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from accelsweep.config.setting import label
from accelsweep.metrics import Metric, rate_unit
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.early_decisions import EarlyDecision
from accelsweep.records.findings import Origin
from accelsweep.records.plan import Manifest, PlannedSetting
from accelsweep.records.run_record import EarlierAttempt
from accelsweep.results import Doubt, Effective, Outcome, Traits
from accelsweep.run_config import SettingConfig
from accelsweep.run_environment import Checkout, HardwareKind, RunEnvironment
from accelsweep.tasks import compared_rate


@dataclass(frozen=True)
class RunRow:
    """A planned run with the values from its record, or an unsupported setting (`run` is None).

    Field names match `records.run_record.Record`, except that the parts of the fingerprint are separate fields. Fields
    that only a record can fill are empty or None if there is no record. `decision` is why a run was left out, if its
    outcome is `decided`. `wall_seconds` is in seconds; times are in UTC,
    formatted as ISO 8601.
    """

    sweep: str
    setting: str
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
    config: SettingConfig | None = None
    effective: Effective | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    hardware: HardwareKind = field(default_factory=HardwareKind)
    software: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    record_sha256: str | None = None
    traits: Traits | str | None = None
    decision: EarlyDecision | None = None
    earlier_attempts: tuple[EarlierAttempt, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the run has a usable record."""
        return self.record_sha256 is not None

    def value(self, metric: str) -> float | None:
        """Return the metric's value; None if the run was not measured or the metric has no value."""
        if self.outcome is not Outcome.measured or metric not in self.metrics:
            return None
        return self.metrics[metric].value

    @cached_property
    def surroundings(self) -> RunEnvironment:
        """The `environment` field with typed attributes."""
        return RunEnvironment(self.environment)

    @property
    def checkout(self) -> Checkout:
        """The `git` field with typed attributes."""
        return Checkout.of(self.git)

    @property
    def machine(self) -> str | None:
        """The machine's identity, if recorded."""
        identity = self.surroundings.before.machine
        return str(identity) if identity is not None else None

    @property
    def node(self) -> str | None:
        """The node's name on the cluster; None outside a cluster."""
        name = self.surroundings.before.variables.get("SLURMD_NODENAME")
        return str(name) if name else None

    @property
    def host(self) -> str | None:
        """The host name, if recorded."""
        name = self.surroundings.before.host
        return str(name) if name is not None else None


def sorted_runs(runs: Iterable[RunRow]) -> list[RunRow]:
    """Sort the rows by setting, repeat and block, so that the findings do not depend on their original order."""
    return sorted(runs, key=lambda run: (run.setting, -1 if run.repeat is None else run.repeat, run.block or ""))


@dataclass(frozen=True)
class SettingRuns:
    """One setting's runs on one kind of hardware (`hardware` is empty if nothing ran).

    `rate_metric` is the metric by which this sweep's settings are compared.
    """

    planned: PlannedSetting
    hardware: HardwareKind
    runs: tuple[RunRow, ...]
    rate_metric: str = "samples_per_second"

    @property
    def setting(self) -> str:
        """The setting's name."""
        return self.planned.name

    @property
    def label(self) -> str:
        """A short label built from the setting's axes."""
        return label(self.planned.axes)

    @cached_property
    def measured(self) -> tuple[RunRow, ...]:
        """The measured runs, including those without a rate because they missed their target."""
        return tuple(run for run in self.runs if run.outcome is Outcome.measured)

    @cached_property
    def rated(self) -> tuple[RunRow, ...]:
        """The runs that have a rate."""
        return tuple(run for run in self.runs if self.rate(run))

    @cached_property
    def decision(self) -> EarlyDecision | None:
        """Why some of the setting's runs were left out; None if none was."""
        return next((run.decision for run in self.runs if run.decision is not None), None)

    @cached_property
    def config(self) -> SettingConfig | None:
        """The frozen config; None if no record or block contains it, as is the case for unsupported settings."""
        return next((run.config for run in self.runs if run.config is not None), None)

    @cached_property
    def effective(self) -> Effective | None:
        """The effective options of the first measured run that recorded any, or None."""
        return next((run.effective for run in self.measured if run.effective is not None), None)

    @property
    def batch_size(self) -> int:
        """The configured batch size per rank; 0 if there is no config."""
        return 0 if self.config is None else self.config.batch_size

    @property
    def world_size(self) -> int | None:
        """The configured number of devices (on a CPU, processes) across all nodes; None if there is no config."""
        return None if self.config is None else self.config.world_size

    @cached_property
    def log_rates(self) -> dict[str, float]:
        """The natural logarithm of the rate in each block."""
        return self.logs(self.rate_metric)

    @cached_property
    def blocks(self) -> frozenset[str]:
        """The blocks in which this setting has a rate."""
        return frozenset(self.log_rates)

    @cached_property
    def qualities(self) -> dict[int, float]:
        """The mean quality of each seed."""
        values: dict[int, list[float]] = {}
        for run in self.measured:
            if (value := run.value("quality")) is not None and run.seed is not None:
                values.setdefault(run.seed, []).append(value)
        return {seed: math.fsum(qualities) / len(qualities) for seed, qualities in values.items()}

    @property
    def rate_unit(self) -> str:
        """The unit of the rate, as recorded."""
        readings = (run.metrics[self.rate_metric] for run in self.runs if self.rate_metric in run.metrics)
        return next((reading.unit for reading in readings), rate_unit(self.rate_metric))

    def rate(self, run: RunRow) -> float | None:
        """Return the rate of a run in this group, or None."""
        return run.value(self.rate_metric)

    def logs(self, metric: str) -> dict[str, float]:
        """Return the mean natural logarithm of a metric for each block, the statistical unit.

        Runs without a positive value are skipped.
        """
        values: dict[str, list[float]] = {}
        for run in self.measured:
            if (value := run.value(metric)) is not None and value > 0:
                values.setdefault(run.block or "", []).append(math.log(value))
        return {block: math.fsum(logs) / len(logs) for block, logs in values.items()}

    def values(self, metric: str) -> list[float]:
        """Return the metric's values from the measured runs that have one, smallest first."""
        return sorted(value for run in self.measured if (value := run.value(metric)) is not None)


def rate_metric_of(manifest: Manifest, runs: Sequence[RunRow]) -> str:
    """Return the metric that the sweep compares.

    If `analysis.rate` is not set, this is the rate metric of the task of the baseline or, failing that, of the first
    run.
    """
    first = sorted(runs, key=lambda run: run.setting != manifest.baseline)
    return compared_rate(
        manifest.options.analysis.rate, (run.config.task_name for run in first if run.config is not None)
    )


def group_runs(manifest: Manifest, runs: Sequence[RunRow], rate_metric: str | None = None) -> list[SettingRuns]:
    """Group the runs by setting and kind of hardware, in grid order. Runs without a record are added to the first kind.

    `rate_metric` overrides the metric derived from this sweep alone.
    """
    metric = rate_metric or rate_metric_of(manifest, runs)
    by_kind: dict[str, dict[HardwareKind, list[RunRow]]] = {setting.name: {} for setting in manifest.settings}
    for run in runs:
        if run.setting in by_kind:
            by_kind[run.setting].setdefault(run.hardware, []).append(run)
    groups = []
    for setting in manifest.settings:
        rows = by_kind[setting.name]
        without_record = rows.pop(HardwareKind(), [])
        first = min(rows, key=lambda kind: kind.key, default=HardwareKind())
        rows[first] = without_record + rows.get(first, [])
        groups += [
            SettingRuns(setting, kind, tuple(rows[kind]), metric) for kind in sorted(rows, key=lambda kind: kind.key)
        ]
    return groups


def environment_summary(manifest: Manifest, runs: Iterable[RunRow]) -> dict[str, str]:
    """Summarise the runs' versions (with build tags), system and governor; differing values are joined."""
    found: dict[str, set[str]] = {}
    for run in runs:
        before = run.surroundings.before
        facts = {name: getattr(before, name) for name in ("system", "python", "cores_usable", "governor")}
        for package, version in run.software.items():
            facts[package] = f"{version}+{tag}" if (tag := run.builds.get(package)) else version
        for fact, value in facts.items():
            if value is not None:
                found.setdefault(fact, set()).add(str(value))
    planned = {name: {version} for name, version in manifest.versions.items()}
    return {name: " and ".join(sorted(values)) for name, values in sorted((planned | found).items())}


def records_digest(runs: Iterable[RunRow]) -> str:
    """Return a SHA-256 over all run names and the SHA-256 of each run's record file."""
    return sha256_text(canonical_json(sorted([run.run or run.setting, run.record_sha256 or ""] for run in runs)))


def origin_of(runs: Sequence[RunRow]) -> Origin:
    """Return the models, data, machines, commits and dates of the recorded runs."""
    recorded = [run for run in runs if run.recorded]
    machines = [run.surroundings.before for run in recorded]
    changes = {run.checkout.dirty for run in recorded} - {None}
    days = sorted(run.started_at[:10] for run in recorded if run.started_at)
    return Origin(
        model=_class_names(run.config.model_target for run in recorded if run.config),
        data=_class_names(run.config.data_target for run in recorded if run.config),
        threads=tuple(sorted({int(machine.cores_usable) for machine in machines if machine.cores_usable})),
        memory_bytes=tuple(sorted({int(machine.memory_bytes) for machine in machines if machine.memory_bytes})),
        commits=tuple(sorted({short for run in recorded if (short := run.checkout.short)})),
        changed=any(changes) if changes else None,
        dates=tuple(dict.fromkeys((days[0], days[-1]))) if days else (),
    )


def _class_names(targets: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({target.rpartition(".")[2] for target in targets if target}))


def setting_series(
    groups: Iterable[SettingRuns], free: Collection[str], same: Callable[[SettingRuns], Any] = lambda _: None
) -> list[list[SettingRuns]]:
    """Return series of two or more settings on the same kind of hardware that differ only in the `free` config keys.

    The settings in a series must also have the same value of `same`. Settings that have not run are left out.
    """
    found: dict[tuple[HardwareKind, str], list[SettingRuns]] = {}
    for group in groups:
        if group.hardware and group.config is not None:
            rest = {key: value for key, value in group.config.raw.items() if key not in free}
            found.setdefault((group.hardware, canonical_json([rest, same(group)])), []).append(group)
    return [members for members in found.values() if len(members) > 1]

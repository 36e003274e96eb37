"""Finds what keeps a setting from being faster than its baseline, in what both of them have measured.

Each test looks at one possible cause and returns its evidence in words, or None. The first cause that is found counts:
causes that explain others come first, such as too few cores before waiting for data. A cause must account for a
substantial part of the step (`results.SUBSTANTIAL`, `results.MAJORITY`), so that an ordinary run has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.features.profile.model import stored_profiles
from accelsweep.features.profile.step_profile import PYTHON, StepProfile
from accelsweep.features.why_not_faster.model import Cause, Explanation, WhyNotFaster
from accelsweep.measure.operators import is_cast, is_matmul
from accelsweep.measure.run_doubts import SATURATED
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.results import BEHIND, MAJORITY, SUBSTANTIAL
from accelsweep.significant_digits import count_of

FORMAT_KEYS = frozenset({"precision", "matmul_precision"})
DEVICE_KEYS = frozenset({"accelerator", "devices", "num_nodes"})
EXPLAINED_KEYS = FORMAT_KEYS | DEVICE_KEYS | {"compile", "channels_last", "batch_size"}
"""Comparisons that differ in one of these keys are explained: they were expected to be faster."""

FASTER_FORMAT = 1.1
"""A number format is faster if matrix products reach this many times the rate in it."""

CAST_SHARE = OPERATOR_SHARE = 0.1
"""Conversions, and operators that became slower, are a cause from this share of a profiled step on."""

MAX_OPERATORS = 3
"""How many operators at most are named together as the cause."""


@dataclass(frozen=True)
class Side:
    """A setting in a comparison, with what was measured of it."""

    finding: SettingFinding
    runs: SettingRuns
    profile: StepProfile | None = None

    def value(self, metric: str) -> float | None:
        """Return the metric's median; None if it was not measured."""
        values = self.runs.values(metric)
        return median(values) if values else None

    @property
    def limit(self) -> str:
        """The verdict on the setting's step, such as `input-bound`; empty if there is none."""
        return "" if self.finding.bottleneck is None else self.finding.bottleneck.verdict

    @property
    def evidence(self) -> str:
        """The evidence for `limit`."""
        return "" if self.finding.bottleneck is None else self.finding.bottleneck.evidence

    @property
    def threads(self) -> int | None:
        """The CPU threads of all ranks on a node; None if unknown."""
        effective = self.finding.effective
        return None if effective is None else effective.threads_per_rank * effective.world_size // effective.num_nodes

    @property
    def own_memory(self) -> bool:
        """Whether the setting ran on a device other than the host."""
        return kind_or_unknown(self.finding.accelerator).own_memory

    def operators(self, is_meant: Callable[[str], bool]) -> float | None:
        """Return the share of a profiled step that these operators took; None without a profile."""
        if self.profile is None:
            return None
        return sum(row.seconds for row in self.profile.operators if is_meant(row.name)) / self.profile.step_seconds

    @property
    def matmul_share(self) -> float | None:
        """The share of a step spent in matrix products and convolutions; None if unknown."""
        measured = self.value("matmul_time_share")
        return self.operators(is_matmul) if measured is None else measured


@dataclass(frozen=True)
class Pair:
    """A setting that is no faster than its baseline. `changed` are the keys in which they differ."""

    setting: Side
    baseline: Side
    changed: frozenset[str] = field(default_factory=frozenset)


def _recompiling(pair: Pair) -> str | None:
    graphs = pair.setting.value("recompilations")
    return f"{count_of(round(graphs), 'graph')} in each run" if graphs else None


def _few_cores(pair: Pair) -> str | None:
    ours, theirs = pair.setting, pair.baseline
    if ours.own_memory:
        used = ours.value("host_cpu_cores_mean")
        cores = next((run.surroundings.before.cores_usable for run in ours.runs.measured), None)
        if used is None or not cores or used < SATURATED * cores or ours.limit.startswith("compute-bound"):
            return None
        return f"{used:.3g} of the machine's {cores} cores were busy during the window, and {ours.evidence}"
    if not pair.changed & DEVICE_KEYS or theirs.own_memory or ours.threads is None or theirs.threads is None:
        return None
    if ours.threads > theirs.threads or ours.finding.num_nodes > theirs.finding.num_nodes:
        return None
    return f"{count_of(ours.finding.world_size, 'rank')} share the cores that the baseline uses as well: " + (
        f"{count_of(ours.threads, 'thread')} in all, the baseline has {theirs.threads}"
    )


def _waiting_for_data(pair: Pair) -> str | None:
    return pair.setting.evidence if pair.setting.limit.startswith("input-bound") else None


def _copying_batches(pair: Pair) -> str | None:
    return pair.setting.evidence if pair.setting.limit.startswith("transfer-bound") else None


def _all_reduce(pair: Pair) -> str | None:
    share = (
        None if pair.setting.finding.bottleneck is None else pair.setting.finding.bottleneck.shares.get("communication")
    )
    if share is None or share < SUBSTANTIAL or not pair.changed & DEVICE_KEYS:
        return None
    return f"the exchange between the ranks, and waiting for the slowest, took {fmt.share(share)} of a step"


def _small_kernels(pair: Pair) -> str | None:
    behind = pair.setting.value("device_behind_share")
    if pair.setting.limit.startswith("overhead-bound") and behind is not None and behind < BEHIND:
        return pair.setting.evidence
    profile = pair.setting.profile
    if profile is None or any(row.device_seconds is None for row in profile.operators):
        return None
    busy = sum(row.seconds for row in profile.operators) / profile.step_seconds
    return f"kernels were running during {fmt.share(busy)} of a profiled step" if busy < MAJORITY else None


def _loop_overhead(pair: Pair) -> str | None:
    return pair.setting.evidence if pair.setting.limit.startswith("overhead-bound") else None


def _power_limit(pair: Pair) -> str | None:
    share, watts = pair.setting.value("gpu_power_capped_mean"), pair.setting.value("gpu_power_limit_watts_mean")
    if share is None or share < MAJORITY:
        return None
    return f"for {fmt.share(share)} of the window" + ("" if watts is None else f", at {watts:.0f} W")


def _tf32_baseline(pair: Pair) -> str | None:
    effective = pair.baseline.finding.effective
    if effective is None or "precision" not in pair.changed or effective.precision != "32-true":
        return None
    if effective.matmul_precision == "highest" or not effective.device_names:
        return None
    if datasheet_flops_per_second(effective.device_names[0], "tf32") is None:
        return None
    return (
        f"matmul_precision={effective.matmul_precision} lets {effective.device_names[0]} multiply float32 matrices in "
        "TF32, so part of the gain is in the baseline"
    )


def _same_arithmetic(pair: Pair) -> str | None:
    name = "matmul_ceiling_flops_per_second"
    ours, theirs = pair.setting.value(name), pair.baseline.value(name)
    if not pair.changed & FORMAT_KEYS or ours is None or theirs is None or ours >= FASTER_FORMAT * theirs:
        return None
    ours_text, theirs_text = (fmt.number(rate, "FLOP/s") for rate in (ours, theirs))
    return f"matrix products reached {ours_text} in it, and {theirs_text} in the baseline's"


def _casts(pair: Pair) -> str | None:
    ours, theirs = pair.setting.operators(is_cast), pair.baseline.operators(is_cast)
    if not pair.changed & FORMAT_KEYS or ours is None or theirs is None or ours - theirs < CAST_SHARE:
        return None
    return (
        f"conversions and copies took {fmt.share(ours)} of a profiled step, and {fmt.share(theirs)} of the baseline's"
    )


def _slower_operators(pair: Pair) -> str | None:
    """Return the fewest operators that account for at least half of what the step lost."""
    ours, theirs = pair.setting.profile, pair.baseline.profile
    if ours is None or theirs is None or pair.setting.finding.verdict is not Verdict.slower:
        return None
    before = {row.name: row.seconds for row in theirs.operators}
    growth = {row: row.seconds - before.get(row.name, 0.0) for row in ours.operators}
    lost = sum(seconds for seconds in growth.values() if seconds > 0.0)
    slowest = sorted((row for row in growth if row.name != PYTHON), key=lambda row: -growth[row])
    for count in range(1, 1 + MAX_OPERATORS):
        seconds = sum(growth[row] for row in slowest[:count])
        if seconds >= MAJORITY * lost and seconds >= OPERATOR_SHARE * ours.step_seconds:
            names = " and ".join(row.title for row in slowest[:count])
            return f"{names} took {fmt.number(seconds, 's')} per step longer than in the baseline, in a profile of both"
    return None


def _other_operations(pair: Pair) -> str | None:
    share = pair.baseline.matmul_share
    if not pair.changed & FORMAT_KEYS or share is None or share > MAJORITY:
        return None
    return f"matrix products and convolutions take only {fmt.share(share)} of the baseline's step"


def _matrix_products(pair: Pair) -> str | None:
    share = pair.baseline.matmul_share
    if "compile" not in pair.changed or share is None or share < 1 - SUBSTANTIAL:
        return None
    return f"matrix products and convolutions, left as they are, take {fmt.share(share)} of the baseline's step"


def _already_busy(pair: Pair) -> str | None:
    if "batch_size" not in pair.changed:
        return None
    sides = (pair.baseline, pair.setting)
    for side in sides:
        behind = side.value("device_behind_share")
        if (
            not side.limit.startswith("compute-bound")
            or " and " in side.limit
            or (behind is not None and behind < BEHIND)
        ):
            return None
    return f"in both, the step is bound by computing; in the baseline, {pair.baseline.evidence}"


_TESTS: Mapping[Cause, Callable[[Pair], str | None]] = {
    Cause.recompiling: _recompiling,
    Cause.few_cores: _few_cores,
    Cause.waiting_for_data: _waiting_for_data,
    Cause.copying_batches: _copying_batches,
    Cause.all_reduce: _all_reduce,
    Cause.small_kernels: _small_kernels,
    Cause.loop_overhead: _loop_overhead,
    Cause.power_limit: _power_limit,
    Cause.tf32_baseline: _tf32_baseline,
    Cause.same_arithmetic: _same_arithmetic,
    Cause.casts: _casts,
    Cause.slower_operators: _slower_operators,
    Cause.other_operations: _other_operations,
    Cause.matrix_products: _matrix_products,
    Cause.already_busy: _already_busy,
}


def cause_of(pair: Pair) -> tuple[Cause, str] | None:
    """Return the first cause that was found, with its evidence; None if nothing conclusive was measured."""
    found = ((cause, test(pair)) for cause, test in _TESTS.items())
    return next(((cause, evidence) for cause, evidence in found if evidence), None)


_INCONCLUSIVE = "the parts of a step and what the machine did meanwhile do not explain it"

_INCONCLUSIVE_PROFILES = "the parts of a step, what the machine did meanwhile and a profile of both do not explain it"


def build_section(analysis: Analysis) -> WhyNotFaster | None:
    """Return an explanation of each comparison in `EXPLAINED_KEYS` that ended with slower or same."""
    pairs = list(_pairs(analysis))
    return WhyNotFaster(explanations=tuple(map(_explanation, pairs))) if pairs else None


def _pairs(analysis: Analysis) -> Iterator[Pair]:
    profiles: dict[str, StepProfile] = {}
    if analysis.folder is not None:
        stored = stored_profiles(analysis.folder, [setting.name for setting in analysis.manifest.settings])
        profiles = {profile.setting: profile.profile for profile in stored.intact}
    findings = {
        (group.setting, group.hardware): one for group, one in zip(analysis.groups, analysis.settings, strict=True)
    }
    for group, comparison in zip(analysis.groups, analysis.comparisons, strict=True):
        partner = comparison.partner
        if partner is None or partner is group or comparison.verdict not in (Verdict.slower, Verdict.same):
            continue
        axes, others = group.planned.axes, partner.planned.axes
        changed = frozenset(key for key in axes.keys() | others.keys() if axes.get(key) != others.get(key))
        if not changed & EXPLAINED_KEYS:
            continue
        ours, theirs = (
            Side(findings[side.setting, side.hardware], side, profiles.get(side.setting)) for side in (group, partner)
        )
        yield Pair(ours, theirs, changed)


def _explanation(pair: Pair) -> Explanation:
    finding, is_profiled = pair.setting.finding, None not in (pair.setting.profile, pair.baseline.profile)
    cause, evidence = cause_of(pair) or (None, _INCONCLUSIVE_PROFILES if is_profiled else _INCONCLUSIVE)
    return Explanation(
        setting=finding.setting,
        label=finding.label,
        hardware=finding.hardware,
        against=pair.baseline.finding.setting,
        changed=tuple(sorted(pair.changed)),
        verdict=finding.verdict,
        cause=cause,
        evidence=evidence,
    )

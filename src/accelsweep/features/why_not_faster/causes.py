"""Finds what keeps a setting from being faster than its baseline, in what both of them have measured.

Each test looks for one possible cause and returns its evidence in words, or None. The first cause that is found counts:
causes that explain others come first, such as too few cores before waiting for data. The thresholds are such that an
ordinary run has no cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.devices.cpu import ISA_LIMITS, emulated_formats, number_format
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.features.profile.model import SettingProfile, stored_profiles
from accelsweep.features.profile.step_profile import PYTHON, StepProfile
from accelsweep.features.why_not_faster.model import Cause, Explanation, WhyNotFaster
from accelsweep.measure.operators import is_cast, is_matmul
from accelsweep.measure.run_doubts import SATURATED
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.results import BEHIND, COMPUTE, MAJORITY, SUBSTANTIAL
from accelsweep.run_config import SettingConfig
from accelsweep.significant_digits import count_of

FORMAT_KEYS = frozenset({"precision", "matmul_precision"})
DEVICE_KEYS = frozenset({"accelerator", "devices", "num_nodes"})
STEP_RATES = frozenset({"samples_per_second", "tokens_per_second"})
"""The rates whose causes lie in a step. A time to a target also depends on how the model learns."""

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
        """Return the time that these operators took in a profile as a share of a measured step; None without a profile.

        The profiler makes steps longer, but hardly the kernels in them.
        """
        if self.profile is None:
            return None
        seconds = sum(row.seconds for row in self.profile.operators if is_meant(row.name))
        return min(1.0, seconds / (self.value("step_seconds") or self.profile.step_seconds))

    @property
    def matmul_share(self) -> float | None:
        """The share of a step spent in matrix products and convolutions; None if unknown."""
        measured = self.value("matmul_time_share")
        return self.operators(is_matmul) if measured is None else measured


@dataclass(frozen=True)
class Pair:
    """A setting that is no faster than its baseline. `changed` are the keys that were expected to make it faster."""

    setting: Side
    baseline: Side
    changed: frozenset[str]


def _recompiling(pair: Pair) -> str | None:
    graphs = min(pair.setting.runs.values("recompilations"), default=0.0)
    return f"{count_of(round(graphs), 'graph')} or more in each run" if graphs >= 1 else None


def _emulated(pair: Pair) -> str | None:
    effective = pair.setting.finding.effective
    if "precision" not in pair.changed or pair.setting.own_memory or effective is None:
        return None
    name = number_format(effective.precision)
    states = [run.surroundings.before for run in pair.setting.runs.measured]
    if not states or not all(name in emulated_formats(state.cpu_flags, state.variables) for state in states):
        return None
    if name in emulated_formats(states[0].cpu_flags, {}):
        return f"{name} is emulated on this CPU, which has no instructions for it"
    limit = next(
        f"{variable}={states[0].variables[variable]}" for variable in ISA_LIMITS if variable in states[0].variables
    )
    return f"{name} is emulated on this CPU, because {limit} switches its instructions for it off"


def _few_cores(pair: Pair) -> str | None:
    ours, theirs = pair.setting, pair.baseline
    if ours.own_memory:
        used, cores = ours.value("host_cpu_cores_mean"), _cores(ours.runs)
        is_kept_waiting = ours.limit and not ours.limit.startswith("compute-bound")
        if used is None or cores is None or used < SATURATED * cores or not is_kept_waiting:
            return None
        return f"{used:.3g} of the machine's {cores} cores were busy during the window, and {ours.evidence}"
    if not pair.changed & DEVICE_KEYS or theirs.own_memory or ours.threads is None or theirs.threads is None:
        return None
    if ours.threads > theirs.threads or ours.finding.num_nodes > theirs.finding.num_nodes:
        return None
    other = "as many as the baseline has" if ours.threads == theirs.threads else f"the baseline has {theirs.threads}"
    return (
        f"{count_of(ours.finding.world_size, 'rank')} share the cores that the baseline uses as well: "
        f"{count_of(ours.threads, 'thread')} in all, {other}"
    )


def _cores(runs: SettingRuns) -> int | None:
    """Return the machine's cores; None if the runs may have used a part of them only, since the readings are of all."""
    states = [run.environment.get("before", {}) for run in runs.measured]
    usable, logical = ({state.get(name) for state in states} for name in ("cores_usable", "cores_logical"))
    return usable.pop() if len(usable) == 1 and usable == logical and None not in usable else None


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
    if _is_overhead_bound(pair.setting) and not _loop_dominates(pair.setting):
        return pair.setting.evidence
    profile = pair.setting.profile
    if profile is None or any(row.device_seconds is None for row in profile.operators):
        return None
    busy = pair.setting.operators(lambda _: True)
    return f"kernels were running during {fmt.share(busy)} of a step" if busy and busy < MAJORITY else None


def _is_overhead_bound(side: Side) -> bool:
    return side.limit.startswith("overhead-bound")


def _loop_dominates(side: Side) -> bool:
    """Return whether the loop takes longer than computing; if not, an overhead-bound device waits for launches."""
    shares = {} if side.finding.bottleneck is None else side.finding.bottleneck.shares
    return shares.get("overhead", 0.0) > sum(shares.get(part, 0.0) for part in COMPUTE)


def _loop_overhead(pair: Pair) -> str | None:
    return pair.setting.evidence if _is_overhead_bound(pair.setting) and _loop_dominates(pair.setting) else None


def _power_limit(pair: Pair) -> str | None:
    share, watts = pair.setting.value("gpu_power_capped_mean"), pair.setting.value("gpu_power_limit_watts_mean")
    theirs = pair.baseline.value("gpu_power_capped_mean")
    if share is None or theirs is None or share < MAJORITY or share - theirs < SUBSTANTIAL:
        return None  # a board that always runs at its limit does so in the baseline, too
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
    """Return the fewest operators that account for at least half of what a step of the same samples lost."""
    ours, theirs = pair.setting.profile, pair.baseline.profile
    if ours is None or theirs is None or pair.setting.finding.verdict is not Verdict.slower:
        return None
    if pair.changed & {"compile", "batch_size"}:  # other operators, or other amounts of work
        return None
    before = {row.name: row.seconds for row in theirs.operators}
    growth = {row: row.seconds - before[row.name] for row in ours.operators if row.name in before}
    lost = ours.step_seconds - theirs.step_seconds
    if lost <= 0.0:
        return None
    slowest = sorted((row for row in growth if row.name != PYTHON), key=lambda row: -growth[row])
    for count in range(1, 1 + MAX_OPERATORS):
        seconds = sum(growth[row] for row in slowest[:count])
        if seconds >= MAJORITY * lost and seconds >= OPERATOR_SHARE * ours.step_seconds:
            names = " and ".join(row.title for row in slowest[:count])
            return f"{names} took {fmt.number(seconds, 's')} per step longer than in the baseline, in a profile of both"
    return None


def _other_operations(pair: Pair) -> str | None:
    share = pair.baseline.matmul_share
    if not pair.changed & FORMAT_KEYS or share is None or share > SUBSTANTIAL:
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
    Cause.emulated: _emulated,
    Cause.few_cores: _few_cores,
    Cause.waiting_for_data: _waiting_for_data,
    Cause.copying_batches: _copying_batches,
    Cause.all_reduce: _all_reduce,
    Cause.small_kernels: _small_kernels,
    Cause.loop_overhead: _loop_overhead,
    Cause.same_arithmetic: _same_arithmetic,
    Cause.casts: _casts,
    Cause.slower_operators: _slower_operators,
    Cause.other_operations: _other_operations,
    Cause.tf32_baseline: _tf32_baseline,
    Cause.power_limit: _power_limit,
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
    """Return an explanation of each comparison that was expected to be faster, and ended with slower or same."""
    if not analysis.groups or analysis.groups[0].rate_metric not in STEP_RATES:
        return None
    pairs = list(_pairs(analysis))
    return WhyNotFaster(explanations=tuple(map(_explanation, pairs))) if pairs else None


def _pairs(analysis: Analysis) -> Iterator[Pair]:
    profiles: dict[str, SettingProfile] = {}
    if analysis.folder is not None:
        stored = stored_profiles(analysis.folder, [setting.name for setting in analysis.manifest.settings])
        profiles = {profile.setting: profile for profile in stored.intact}
    by_group = zip(analysis.groups, analysis.settings, strict=True)
    findings = {(group.setting, group.hardware): finding for group, finding in by_group}
    for group, comparison in zip(analysis.groups, analysis.comparisons, strict=True):
        partner = comparison.partner
        if partner is None or partner is group or comparison.verdict not in (Verdict.slower, Verdict.same):
            continue
        if group.config is None or partner.config is None:
            continue
        if changed := improved_keys(group.config, partner.config):
            ours, theirs = (
                Side(findings[side.setting, side.hardware], side, _matching(profiles.get(side.setting), side))
                for side in (group, partner)
            )
            yield Pair(ours, theirs, changed)


def _matching(profile: SettingProfile | None, group: SettingRuns) -> StepProfile | None:
    """Return a profile of the hardware and the sources that were measured; None if it is of others."""
    if profile is None or profile.fingerprint.hardware_kind != group.hardware:
        return None
    return profile.profile if any(run.sources == profile.fingerprint.sources for run in group.measured) else None


_MATMUL_PRECISIONS = (None, "highest", "high", "medium")


def improved_keys(ours: SettingConfig, theirs: SettingConfig) -> frozenset[str]:
    """Return the keys whose values were expected to make the setting `ours` faster than `theirs`."""
    precisions = [_MATMUL_PRECISIONS.index(config.matmul_precision) for config in (ours, theirs)]
    improved = {
        "precision": _bits(ours.precision) < _bits(theirs.precision),
        "matmul_precision": precisions[0] > precisions[1],
        "compile": ours.compile is not None and theirs.compile is None,
        "channels_last": bool(ours.channels_last) and not theirs.channels_last,
        "accelerator": theirs.accelerator == "cpu" != ours.accelerator,
        "devices": ours.devices > theirs.devices,
        "num_nodes": ours.num_nodes > theirs.num_nodes,
        "batch_size": ours.batch_size > theirs.batch_size,
    }
    return frozenset(key for key, is_better in improved.items() if is_better)


def _bits(precision: str) -> int:
    """Return the width of a precision's numbers: 32 for `32-true`, 16 for `bf16-mixed`, 8 for `transformer-engine`."""
    found = re.search(r"\d+", precision)
    return int(found[0]) if found else 8


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

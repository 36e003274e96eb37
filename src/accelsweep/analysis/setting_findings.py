"""Builds the finding for one setting from its runs, comparison with the baseline, quality and costs, and rounds it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from statistics import median
from typing import Any

from accelsweep.analysis.baseline_comparison import Comparison, rate_estimate, ratio_in_block
from accelsweep.analysis.costs import time_to_target
from accelsweep.analysis.intervals import Family, mean, round_significant
from accelsweep.analysis.quality import SettingQuality
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.analysis.sweep_doubts import setting_doubts
from accelsweep.config.setting import override_value
from accelsweep.config.site import Site
from accelsweep.config.versions import command_words, without_version
from accelsweep.metrics import MEMORY_METRICS, Metric
from accelsweep.records.estimates import Estimate, Summary
from accelsweep.records.findings import RunPoint, SettingFinding, StepBottleneck
from accelsweep.records.plan import Manifest, PlannedSetting
from accelsweep.results import PARTS, Doubt, Effective, Outcome, bottleneck
from accelsweep.run_config import SettingConfig
from accelsweep.run_environment import HardwareKind
from accelsweep.tasks import task_of
from accelsweep.trainer_arguments import DEFAULTS

_UNQUOTED = re.compile(r"[\w.+/:-]+")
"""Text that Hydra's grammar accepts without quotes."""

_OVERRIDE_KEY = re.compile(r"([+~]*)([\w.@/-]+)")

_SCRIPT_OVERRIDE_KEY = re.compile(r"([+~]*(?:(?:project|sweep)\.)?)([\w.@/-]+)")


@dataclass(frozen=True)
class Context:
    """Inputs to a setting's finding other than its own runs; `repeated` settings ran on several kinds of hardware."""

    hardware: Mapping[HardwareKind, str]
    family: Family
    outlying: Collection[str]
    overlapping: Collection[str]
    repeated: Collection[str]
    manifest: Manifest


def build_finding(
    group: SettingRuns,
    comparison: Comparison,
    costs: dict[str, Estimate],
    quality: SettingQuality,
    levels: Doubt | None,
    context: Context,
) -> SettingFinding:
    """Return a setting's finding; `levels` is the doubt from `two_levels`, if there is one."""
    doubts = [*comparison.doubts, *setting_doubts(group, context.outlying, context.overlapping), levels]
    metrics, hardware = summaries(group), context.hardware.get(group.hardware)
    return SettingFinding(
        setting=group.setting,
        label=f"{group.label}, {hardware}" if hardware and group.setting in context.repeated else group.label,
        axes=group.planned.axes,
        hardware=hardware,
        planned=sum(run.run is not None for run in group.runs),
        measured=len(group.measured),
        outcomes=count_outcomes(group.runs),
        reasons=tuple(dict.fromkeys(run.reason for run in group.runs if run.reason is not None)),
        rate=rate_estimate(group, context.family.confidence),
        speedup=comparison.speedup,
        verdict=comparison.verdict,
        verdict_reason=comparison.reason,
        quality=quality.mean,
        quality_verdict=quality.verdict,
        metrics=metrics,
        memory_share=memory_share(metrics, group.effective, context.manifest.site),
        effective=group.effective,
        doubts=tuple(doubt for doubt in doubts if doubt is not None),
        runs=tuple(_point(run, group, comparison.partner) for run in group.runs if run.run is not None),
        quality_difference=quality.difference,
        costs=costs,
        bottleneck=bottleneck_of(group),
        time_to_target=time_to_target(group, Family(1, context.family.confidence)),
        again=rerun_command(context.manifest, group.planned),
        trainer=trainer_call(group.config) if group.config else None,
    )


def _point(run: RunRow, group: SettingRuns, partner: SettingRuns | None) -> RunPoint:
    rate, quality = group.rate(run), run.value("quality")
    ratio = ratio_in_block(partner, rate, run.block) if partner is not None and rate else None
    return RunPoint(
        run=run.run or "",
        repeat=run.repeat or 0,
        block=run.block or "",
        position=run.position,
        earlier_attempts=run.earlier_attempts,
        outcome=run.outcome,
        reason=run.reason,
        rate=None if rate is None else round_significant(rate),
        quality=None if quality is None else round_significant(quality),
        started_at=run.started_at,
        doubts=run.doubts,
        ratio=None if ratio is None else round_significant(ratio),
    )


def count_outcomes(runs: Iterable[RunRow]) -> dict[Outcome, int]:
    """Count the runs by outcome, in the order of `Outcome`; outcomes that do not occur are omitted."""
    counts = Counter(run.outcome for run in runs)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def summaries(group: SettingRuns) -> dict[str, Summary]:
    """Return the median and range of each metric over the measured runs, keyed by name in alphabetical order."""
    names = sorted({name for run in group.measured for name in run.metrics})
    return {name: _summary([run.metrics[name] for run in group.measured if name in run.metrics]) for name in names}


def _summary(readings: list[Metric]) -> Summary:
    values = sorted(reading.value for reading in readings if reading.value is not None)
    return Summary(
        median=round_significant(median(values)) if values else None,
        minimum=round_significant(values[0]) if values else None,
        maximum=round_significant(values[-1]) if values else None,
        count=len(values),
        unit=readings[0].unit,
        reason=_joined("; ", {reading.reason for reading in readings}),
        scope=_joined(" and ", {reading.scope for reading in readings}),
        provenance=_joined(" and ", {reading.provenance for reading in readings}),
    )


def _joined(separator: str, texts: Set[str | None]) -> str | None:
    return separator.join(sorted([text for text in texts if text is not None])) or None


def memory_share(metrics: Mapping[str, Summary], effective: Effective | None, site: Site) -> float | None:
    """Return the share of one device's memory (on a CPU, the machine's) in use; None if not in the inventory."""
    medians = (metrics[name].median for name in MEMORY_METRICS if name in metrics)
    used = next((value for value in medians if value is not None), None)
    if used is None or effective is None:
        return None
    models = effective.device_names
    fitting = [
        device
        for device in site.devices
        if device.accelerator == effective.accelerator and (not models or device.model in models)
    ]
    if len(fitting) != 1 or not fitting[0].memory_bytes:
        return None
    return round_significant(used / fitting[0].memory_bytes)


def bottleneck_of(group: SettingRuns) -> StepBottleneck | None:
    """Determine the bottleneck as for a single run, but from the shares averaged over all runs.

    None if no run has a breakdown. Parts that were not measured in every run are left out.
    """
    runs = []
    for run in group.measured:
        measured = {part: run.value(f"{part}_share") for part in PARTS}
        if shares := {part: share for part, share in measured.items() if share is not None}:
            runs.append(shares)
    if not runs:
        return None
    means = {part: mean([run[part] for run in runs]) for part in PARTS if all(part in run for run in runs)}
    behind = group.values("device_behind_share")
    verdict, evidence = bottleneck(means, mean(behind) if behind else None)
    rounded = {part: round_significant(share) for part, share in means.items()}
    return StepBottleneck(verdict=verdict, evidence=evidence, shares=rounded, count=len(runs))


def rerun_command(manifest: Manifest, setting: PlannedSetting) -> str:
    """Return the command that measures only this setting, under the same name, in a new sweep.

    This setting's values replace the axis overrides. No baseline is specified, because only one setting remains. If the
    sweep compares versions, all of them are measured.
    """
    keys = {override: _sign_and_key(override, manifest.entry is not None) for override in manifest.overrides}
    other = [
        override
        for override, (_, key) in keys.items()
        if key not in manifest.axes and key.partition(".")[0] != "baseline"
    ]
    signs = {key: sign for sign, key in keys.values()}
    values = [f"{signs.get(key, '')}{key}={_override(value)}" for key, value in without_version(setting.axes).items()]
    words, baseline = command_words(manifest.compared, exactly=True), [] if manifest.compared else ["baseline=null"]
    name = f"{manifest.sweep}-{setting.name[:6]}"
    options = [*manifest.entry_arguments, "--name", name, *manifest.profile_arguments]
    return shlex.join(["accelsweep", *words, *other, *values, *baseline, *options])


def _sign_and_key(override: str, of_script: bool) -> tuple[str, str]:
    """Split an override's key into its prefix, such as `+` or, with the user's own script, `project.`, and the rest."""
    match = (_SCRIPT_OVERRIDE_KEY if of_script else _OVERRIDE_KEY).match(override)
    return (match[1], match[2]) if match else ("", override)


def _override(value: Any) -> str:
    """Format a value in Hydra's override grammar, quoted if necessary."""
    text = override_value(value)
    if not isinstance(value, str) or _UNQUOTED.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def trainer_call(config: SettingConfig) -> str | None:
    """Return `Trainer(accelerator="cpu", devices=1, precision="32-true")`, or the command of the user's own script.

    Returns None if the task does not use a Trainer.
    """
    options = ", ".join(f"{key}={override_value(value)}" for key, value in config.options_from_outside.items())
    if config.entry is not None:
        return "  # with ".join(filter(None, (config.entry.shell_command, config.entry.trainer_call, options)))
    if config.loop != "lightning" or task_of(config.task, config.raw).model_trains:
        return None
    arguments: dict[str, Any] = {"accelerator": config.accelerator, "devices": config.devices}
    arguments |= {"num_nodes": config.num_nodes} if config.num_nodes > 1 else {}
    arguments["precision"] = config.precision
    changed = {key: value for key, value in config.trainer.items() if key not in DEFAULTS or value != DEFAULTS[key]}
    return "  # with ".join(filter(None, (_call("Trainer", arguments | changed), options)))


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _python(value: Any) -> str:
    """Format a config value as Python source; a node with a `_target_` becomes a call."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping) and "_target_" in value:
        arguments = {key: item for key, item in value.items() if not str(key).startswith("_")}
        return _call(str(value["_target_"]).rpartition(".")[2], arguments)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_python, value)) + "]"
    return repr(value)

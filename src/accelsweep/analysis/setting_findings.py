"""One cell's finding: its runs, comparison with the baseline, quality and costs, put together and rounded."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from accelsweep.analysis.baseline_comparison import Comparison, over, own_rate
from accelsweep.analysis.costs import time_to_target
from accelsweep.analysis.intervals import Family, mean, significant
from accelsweep.analysis.quality import CellQuality
from accelsweep.analysis.run_results import CellRuns, Reading, RunRow
from accelsweep.analysis.sweep_doubts import cell_doubts
from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import as_typed
from accelsweep.config.site import Site
from accelsweep.config.trainer import DEFAULTS
from accelsweep.config.versions import without_version, words_for
from accelsweep.records.estimates import Estimate, Summary
from accelsweep.records.findings import CellFinding, RunPoint, StepBottleneck
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.records.plan import Manifest, PlannedCell
from accelsweep.records.run_environment import HardwareKind
from accelsweep.records.run_record import PARTS, Doubt, Effective, Outcome, bottleneck

# A setting to take away: the command that measures it again alone, and the Trainer's arguments to paste.

_PLAIN = re.compile(r"[\w.+/:-]+")

_KEY = re.compile(r"([+~]*)([\w.@/-]+)")


def command_again(manifest: Manifest, cell: PlannedCell) -> str:
    """Return the command that measures this setting alone, in a sweep of its own; the cell's name stays the same.

    The overrides of the axes give way to this setting's values. No baseline is named, because only one setting is left.
    Where versions are compared, all of them are measured.
    """
    signs = {key: sign for sign, key in map(_parts, manifest.overrides)}
    kept = [one for one in manifest.overrides if _parts(one)[1] not in manifest.axes]
    kept = [one for one in kept if _parts(one)[1].partition(".")[0] != "baseline"]
    values = [f"{signs.get(key, '')}{key}={_override(value)}" for key, value in without_version(cell.axes).items()]
    words, alone = words_for(manifest.compared, exactly=True), [] if manifest.compared else ["baseline=null"]
    name = f"{manifest.sweep}-{cell.name[:6]}"
    return shlex.join(["accelsweep", *words, *kept, *values, *alone, "--name", name, *manifest.submitted_with])


def _parts(override: str) -> tuple[str, str]:
    """Return the sign before an override's key, such as `+`, and the key."""
    found = _KEY.match(override)
    return (found[1], found[2]) if found else ("", override)


def _override(value: Any) -> str:
    """Return a value as Hydra's grammar takes it: text with other signs in quotes."""
    text = as_typed(value)
    if not isinstance(value, str) or _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def trainer_call(config: CellConfig) -> str | None:
    """Return `Trainer(accelerator="cpu", devices=1, precision="32-true")`; None where no Trainer is at work."""
    if config.loop != "lightning" or config.task == "boosting":
        return None
    arguments: dict[str, Any] = {"accelerator": config.accelerator, "devices": config.devices}
    arguments |= {"num_nodes": config.num_nodes} if config.num_nodes > 1 else {}
    arguments["precision"] = config.precision
    own = {key: value for key, value in config.trainer.items() if key not in DEFAULTS or value != DEFAULTS[key]}
    return _call("Trainer", arguments | own)


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _python(value: Any) -> str:
    """Return a value of a config as Python; a node with a class becomes its call."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping) and "_target_" in value:
        own = {key: item for key, item in value.items() if not str(key).startswith("_")}
        return _call(str(value["_target_"]).rpartition(".")[2], own)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_python, value)) + "]"
    return repr(value)


# The time of a cell's steps by part: the mean of its runs' shares, judged by the same rule as one run.


def bottleneck_of(group: CellRuns) -> StepBottleneck | None:
    """Return the bottleneck of a cell, or None if no run of it has a breakdown.

    Runs count alike. A part is left out for all if a run could not measure it.
    """
    runs = [shares for run in group.measured if (shares := _shares(run))]
    if not runs:
        return None
    parts = [part for part in PARTS if all(part in shares for shares in runs)]
    shares = {part: mean([shares[part] for shares in runs]) for part in parts}
    behind = group.values("device_behind_share")
    verdict, evidence = bottleneck(shares, mean(behind) if behind else None)
    rounded = {part: significant(share) for part, share in shares.items()}
    return StepBottleneck(verdict=verdict, evidence=evidence, shares=rounded, count=len(runs))


def _shares(run: RunRow) -> dict[str, float]:
    found = {part: run.value(f"{part}_share") for part in PARTS}
    return {part: share for part, share in found.items() if share is not None}


# Memory as a share of what the machine or the device has, where the inventory states that.


def memory_share(metrics: Mapping[str, Summary], effective: Effective | None, site: Site) -> float | None:
    """Return the memory that a setting took over that of one device (of the machine, on a CPU), or None."""
    used = next((one.median for name in MEMORY_METRICS if (one := metrics.get(name)) and one.median is not None), None)
    if used is None or effective is None:
        return None
    models = effective.device_names
    fitting = [
        one for one in site.devices if one.accelerator == effective.accelerator and (not models or one.model in models)
    ]
    if len(fitting) != 1 or not fitting[0].memory_bytes:
        return None
    return significant(used / fitting[0].memory_bytes)


# Every metric of a cell over its repeats: the median and the range, or the reason why there is none.


def summaries(group: CellRuns) -> dict[str, Summary]:
    """Return the summary of each metric that a measured run of the cell has, by name in alphabetical order."""
    names = sorted({name for run in group.measured for name in run.metrics})
    return {name: _summary([run.metrics[name] for run in group.measured if name in run.metrics]) for name in names}


def _summary(metrics: list[Reading]) -> Summary:
    values = [metric.value for metric in metrics if metric.value is not None]
    reasons = sorted({metric.reason for metric in metrics if metric.reason is not None})
    return Summary(
        median=significant(median(values)) if values else None,
        minimum=significant(min(values)) if values else None,
        maximum=significant(max(values)) if values else None,
        count=len(values),
        unit=metrics[0].unit,
        reason="; ".join(reasons) or None,
        scope=_joined(metric.scope for metric in metrics),
        provenance=_joined(metric.provenance for metric in metrics),
    )


def _joined(words: Iterable[str | None]) -> str | None:
    return " and ".join(sorted({word for word in words if word is not None})) or None


def counted(runs: Iterable[RunRow]) -> dict[Outcome, int]:
    """Return the number of runs for each outcome, in the order of the outcomes' definition."""
    counts = Counter(run.outcome for run in runs)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


@dataclass(frozen=True)
class Context:
    """The facts beside its own runs that the finding of a cell depends on."""

    hardware: Mapping[HardwareKind, str]
    family: Family
    outlying: Collection[str]
    overlapping: Collection[str]
    manifest: Manifest


def finding_of(
    one: CellRuns,
    comparison: Comparison,
    priced: dict[str, Estimate],
    quality: CellQuality,
    levels: Doubt | None,
    context: Context,
) -> CellFinding:
    """Return the finding of `one`, given how it compares, its costs, its quality, and a doubt about its levels."""
    own = cell_doubts(one, context.outlying, context.overlapping)
    metrics = summaries(one)
    return CellFinding(
        cell=one.cell,
        label=one.label,
        axes=one.planned.axes,
        hardware=context.hardware.get(one.hardware),
        planned=sum(run.run is not None for run in one.runs),
        measured=len(one.measured),
        outcomes=counted(one.runs),
        reasons=tuple(dict.fromkeys(run.reason for run in one.runs if run.reason is not None)),
        rate=own_rate(one, context.family.confidence),
        speedup=comparison.speedup,
        verdict=comparison.verdict,
        verdict_reason=comparison.reason,
        quality=quality.mean,
        quality_verdict=quality.verdict,
        metrics=metrics,
        memory_share=memory_share(metrics, one.effective, context.manifest.site),
        effective=one.effective,
        doubts=(*comparison.doubts, *own, *([levels] if levels is not None else [])),
        runs=tuple(_point(run, one.rate(run), comparison.partner) for run in one.runs if run.run is not None),
        quality_difference=quality.difference,
        costs=priced,
        bottleneck=bottleneck_of(one),
        time_to_target=time_to_target(one, Family(1, context.family.confidence)),
        again=command_again(context.manifest, one.planned),
        trainer=trainer_call(one.config) if one.config else None,
    )


def _point(run: RunRow, rate: float | None, partner: CellRuns | None) -> RunPoint:
    ratio = over(partner, rate, run.block) if partner is not None and rate else None
    quality = run.value("quality")
    return RunPoint(
        run=run.run or "",
        repeat=run.repeat or 0,
        block=run.block or "",
        position=run.position,
        outcome=run.outcome,
        reason=run.reason,
        rate=None if rate is None else significant(rate),
        quality=None if quality is None else significant(quality),
        started_at=run.started_at,
        doubts=run.doubts,
        ratio=None if ratio is None else significant(ratio),
    )

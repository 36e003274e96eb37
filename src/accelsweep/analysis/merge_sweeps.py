"""Merges the plans and runs of several sweeps into one larger sweep for `analyse`.

Run and block names are prefixed with the sweep's name (`A/3f2a-r0`), so that nothing is paired across sweeps. For a
setting planned by several sweeps, there is one finding per kind of hardware. A different commit or different software
on identical hardware counts as a different kind, named after the commit or the sweep. If nothing differs, the runs
count as additional repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from accelsweep import registry
from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.prices import Price, Prices
from accelsweep.devices.kinds import Accelerator
from accelsweep.plain_json import MISSING, canonical_json, look_up
from accelsweep.records.findings import Certainty, Findings
from accelsweep.records.plan import Excluded, Manifest, MergedName, PlannedSetting
from accelsweep.records.sweep_commands import add_blocks_command, retry_command, sweep_command
from accelsweep.results import Outcome
from accelsweep.run_environment import HardwareKind

ACCELERATORS = frozenset(get_args(Accelerator))


@dataclass(frozen=True)
class Part:
    """One of the merged sweeps: its folder name, its runs as returned by `collect`, and its plan."""

    name: str
    runs: Sequence[RunRow]
    manifest: Manifest


def analyse_together(name: str, parts: Sequence[Part], home: Path | None = None) -> Findings:
    """Analyse several sweeps together as a sweep called `name`, using the first sweep's baseline and options.

    `home` is the working directory that contains all the sweeps, if there is one.
    """
    findings = analyse(*merge(name, parts), home=home)
    advice = findings.recommendation
    if advice.settle is not None:
        # each sweep contributes blocks to all settings that it has in common with the other sweeps
        sharing = (
            len({MergedName.of(run.block or "").sweep for run in setting.runs})
            for setting in findings.settings
            if setting.runs
        )
        each = math.ceil(advice.settle_blocks / min(sharing, default=1))
        plans = [part.manifest.model_copy(update={"sweep": part.name}) for part in parts]
        lines = [add_blocks_command(plan, each) for plan in plans]
        if advice.certainty is Certainty.disturbed:
            lines = [retry_command(plan) for plan in plans]
        elif Outcome.not_run in findings.outcomes:
            lines = [line or sweep_command(plan) for line, plan in zip(lines, plans, strict=True)]
        minutes = advice.settle_minutes
        if minutes is not None and advice.settle_blocks:
            minutes *= each * len(plans) / advice.settle_blocks
        advice = advice.model_copy(
            update={
                "settle": "\n".join(filter(None, lines)) or None,
                "settle_blocks": each * len(plans),
                "settle_minutes": minutes,
            }
        )
    names = tuple(part.name for part in parts)
    reproduce = " ".join(("accelsweep report", *names))
    settings = tuple(
        setting.model_copy(update={"again": None}) for setting in findings.settings
    )  # one command per sweep
    changes = {"command": reproduce, "recommendation": advice, "merged": names, "settings": settings}
    return findings.model_copy(update=changes)


def merge(name: str, parts: Sequence[Part]) -> tuple[list[RunRow], Manifest]:
    """Combine the runs and plans of all `parts`, in the given order."""
    runs = _mark_hardware([_renamed(part.name, run) for part in parts for run in part.runs])
    axes = tuple(dict.fromkeys(axis for part in parts for axis in part.manifest.axes))
    settings = _settings(parts, axes, {run.setting: run.config.raw for run in runs if run.config is not None})
    # the row of an unsupported setting is dropped if another sweep supports it or has already contributed such a row
    merged, seen = [], {setting.name for setting in settings if setting.unsupported is None}
    for run in runs:
        if run.run is None and run.outcome is Outcome.unsupported:
            if run.setting in seen:
                continue
            seen.add(run.setting)
        merged.append(run)
    return merged, _manifest(name, parts, axes, settings)


def _renamed(sweep: str, row: RunRow) -> RunRow:
    """Prefix a row's run and block names with the sweep's name."""
    run, block = (None if name is None else str(MergedName(sweep, name)) for name in (row.run, row.block))
    return replace(row, sweep=sweep, run=run, block=block)


def _mark_hardware(runs: Sequence[RunRow]) -> list[RunRow]:
    """Label identical hardware with the commit, or else with the sweep, if its runs differ in commit or software."""
    kinds: dict[HardwareKind, dict[str, RunRow]] = {}
    for run in runs:
        if run.recorded:
            kinds.setdefault(run.hardware, {})[_variant(run)] = run
    marks = {kind: _marks(variants) for kind, variants in kinds.items() if len(variants) > 1}
    return [
        replace(run, hardware=HardwareKind.of({**run.hardware.details, **marks[run.hardware][_variant(run)]}))
        if run.recorded and run.hardware in marks
        else run
        for run in runs
    ]


def _variant(run: RunRow) -> str:
    """Return a key; runs on identical hardware count as repeats of each other only if their keys are equal."""
    return canonical_json([run.software, run.sources, *run.checkout])


def _marks(variants: Mapping[str, RunRow]) -> dict[str, dict[str, str]]:
    commits = {key: short for key, run in variants.items() if (short := run.checkout.short)}
    if len(set(commits.values())) == len(variants):
        return {key: {"commit": commit} for key, commit in commits.items()}
    return {key: {"sweep": run.sweep} for key, run in variants.items()}


def _settings(
    parts: Sequence[Part], axes: Sequence[str], configs: Mapping[str, Mapping[str, Any]]
) -> tuple[PlannedSetting, ...]:
    """Return every planned setting once, with its value on every sweep's axes, taken from the plan or the config."""
    merged: dict[str, PlannedSetting] = {}
    for setting in (setting for part in parts for setting in part.manifest.settings):
        known = merged.get(setting.name, setting)
        planned = {**setting.axes, **known.axes}
        values = {axis: planned.get(axis, _plain_value(configs.get(setting.name, {}), axis)) for axis in axes}
        merged[setting.name] = PlannedSetting(
            name=setting.name,
            axes={axis: value for axis, value in values.items() if value is not None},
            unsupported=known.unsupported if setting.unsupported is not None else None,
        )
    return tuple(merged.values())


def _plain_value(config: Mapping[str, Any], axis: str) -> Any:
    """Return a config's value on an axis if it is a scalar, else None."""
    value = look_up(config, axis.lstrip("+"))
    return None if value is MISSING or isinstance(value, Mapping | list) else value


def _manifest(
    name: str, parts: Sequence[Part], axes: tuple[str, ...], settings: tuple[PlannedSetting, ...]
) -> Manifest:
    """Extend the first plan with the others, applying each plan's prices to the hardware of its own runs."""
    plans = [part.manifest for part in parts]
    experiments = {plan.experiment for plan in plans}
    inventory = dict.fromkeys(device for plan in plans for device in plan.site.devices)
    excluded: list[Excluded] = []
    versions: dict[str, set[str]] = {}
    for plan in plans:
        excluded += [one for one in plan.excluded if one not in excluded]
        for package, version in plan.versions.items():
            versions.setdefault(package, set()).add(version)
    blocks = []
    for part in parts:
        for block in part.manifest.blocks:
            runs = tuple(str(MergedName(part.name, run)) for run in block.runs)
            blocks.append(block.model_copy(update={"name": str(MergedName(part.name, block.name)), "runs": runs}))
    reports = [plan.options.report for plan in plans]
    report = dict(reports[0])
    for merge_options in registry.loaded("merge_options"):
        report |= merge_options(reports)
    return plans[0].model_copy(
        update={
            "sweep": name,
            "revision": max(plan.revision for plan in plans),
            "experiment": plans[0].experiment if len(experiments) == 1 else None,
            "axes": axes,
            "settings": settings,
            "excluded": tuple(excluded),
            "baseline": next((plan.baseline for plan in plans if plan.baseline is not None), None),
            "blocks": tuple(blocks),
            "options": plans[0].options.model_copy(update={"prices": _prices(parts), "report": report}),
            "site": plans[0].site.model_copy(update={"inventory": tuple(inventory), "kinds": ()}),
            "versions": {package: " and ".join(sorted(found)) for package, found in versions.items()},
        }
    )


def _prices(parts: Sequence[Part]) -> Prices:
    """Return all prices keyed by device model; earlier parts take precedence.

    A price for all devices of an accelerator, such as `cpu`, applies only to those of its own sweep.
    """
    given = [part.manifest.options.prices for part in parts]
    devices: dict[str, Price] = {}
    for prices, part in reversed(list(zip(given, parts, strict=True))):
        hourly = prices.hourly
        by_model = {name: price for name, price in hourly.items() if name not in ACCELERATORS}
        for effective in (run.effective for run in part.runs if run.effective is not None):
            for model in effective.device_names if effective.accelerator in hourly else ():
                by_model.setdefault(model, hourly[effective.accelerator])
        devices |= by_model
    return Prices(
        devices=devices,
        electricity=next((prices.electricity for prices in given if prices.electricity is not None), None),
        carbon=next((prices.carbon for prices in given if prices.carbon is not None), None),
    )

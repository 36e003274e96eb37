"""Several sweeps as one: their plans and their runs, merged so that `analyse` sees one larger sweep.

Runs and blocks get their sweep's name before their own (`A/3f2a-r0`), so that nothing pairs across sweeps. A cell that
both planned has one row per kind of hardware. Sweeps may differ in commit or software on equal hardware. That counts as
two kinds, told apart by the commit or by the sweep's name. Where nothing differs, the runs are simply more repeats of
one cell. Like is still compared with like only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from accelsweep import registry
from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.headline import command, more_blocks
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.prices import Price, Prices
from accelsweep.config.sweep_options import Settings
from accelsweep.devices.kinds import Accelerator
from accelsweep.json_documents import MISSING, canonical_json, look_up
from accelsweep.records.findings import Findings
from accelsweep.records.plan import Manifest, MergedName, PlannedBlock, PlannedCell
from accelsweep.records.run_environment import HardwareKind
from accelsweep.records.run_record import Outcome

ACCELERATORS = frozenset(get_args(Accelerator))


@dataclass(frozen=True)
class Part:
    """One of the sweeps: the name of its folder, its runs as `collect` returns them, and its plan."""

    name: str
    runs: Sequence[RunRow]
    manifest: Manifest


def analyse_together(name: str, parts: Sequence[Part], home: Path | None = None) -> Findings:
    """Return the findings of several sweeps under the new name `name`; the first one's baseline and settings count.

    `home` is the working directory that holds them, if one does.
    """
    findings = analyse(*merge(name, parts), home=home)
    advice = findings.recommendation
    if advice.settle is not None:
        each = math.ceil(advice.settle_blocks / _sharing(findings))
        plans = [part.manifest.model_copy(update={"sweep": part.name}) for part in parts]
        lines = [more_blocks(plan, each) or command(plan) for plan in plans]
        minutes = advice.settle_minutes
        if minutes is not None:
            minutes *= each * len(plans) / advice.settle_blocks
        advice = advice.model_copy(
            update={"settle": "\n".join(lines), "settle_blocks": each * len(plans), "settle_minutes": minutes}
        )
    names = tuple(part.name for part in parts)
    reproduce = " ".join(("accelsweep report", *names))
    cells = tuple(cell.model_copy(update={"again": None}) for cell in findings.cells)  # each sweep has its own command
    changes = {"command": reproduce, "recommendation": advice, "merged": names, "cells": cells}
    return findings.model_copy(update=changes)


def _sharing(findings: Findings) -> int:
    """Return how many sweeps at least every row with runs has its repeats from: each of them adds to the row."""
    shares = [len({MergedName.of(run.block or "").sweep for run in cell.runs}) for cell in findings.cells if cell.runs]
    return min(shares, default=1)


def merge(name: str, parts: Sequence[Part]) -> tuple[list[RunRow], Manifest]:
    """Return the runs and the plan of all `parts` together, in their order."""
    runs = _told_apart([_named(part.name, run) for part in parts for run in part.runs])
    axes = tuple(dict.fromkeys(axis for part in parts for axis in part.manifest.axes))
    cells = _cells(parts, axes, {run.cell: run.config.raw for run in runs if run.config is not None})
    kept = _without_doubles(runs, {cell.name for cell in cells if cell.unsupported is None})
    return kept, _manifest(name, parts, axes, cells)


def _named(sweep: str, row: RunRow) -> RunRow:
    """Return a row with its sweep's name before the names of its run and its block."""
    run, block = (None if name is None else str(MergedName(sweep, name)) for name in (row.run, row.block))
    return replace(row, sweep=sweep, run=run, block=block)


def _told_apart(runs: Sequence[RunRow]) -> list[RunRow]:
    """Mark the hardware of runs that ran at other commits, or with other software, on otherwise equal hardware."""
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
    """Return the facts that must be equal for runs on equal hardware to be repeats of one another."""
    return canonical_json([run.software, run.sources, *run.checkout])


def _marks(variants: Mapping[str, RunRow]) -> dict[str, dict[str, str]]:
    commits = {key: short for key, run in variants.items() if (short := run.checkout.short)}
    if len(set(commits.values())) == len(variants):
        return {key: {"commit": commit} for key, commit in commits.items()}
    return {key: {"sweep": run.sweep} for key, run in variants.items()}


def _without_doubles(runs: Iterable[RunRow], supported: set[str]) -> list[RunRow]:
    """Drop the row of an unsupported cell where another sweep supports that cell, or says the same already."""
    kept, seen = [], set(supported)
    for run in runs:
        if run.run is None and run.outcome is Outcome.unsupported:
            if run.cell in seen:
                continue
            seen.add(run.cell)
        kept.append(run)
    return kept


def _cells(
    parts: Sequence[Part], axes: Sequence[str], configs: Mapping[str, Mapping[str, Any]]
) -> tuple[PlannedCell, ...]:
    """Return every planned cell once, with a value on each axis of any sweep that its plan or its config states."""
    found: dict[str, PlannedCell] = {}
    for cell in (cell for part in parts for cell in part.manifest.cells):
        known = found.get(cell.name, cell)
        values = {**cell.axes, **known.axes}
        told = {axis: values.get(axis, _told(configs.get(cell.name, {}), axis)) for axis in axes}
        both = known.unsupported if cell.unsupported is not None else None
        placed = {axis: value for axis, value in told.items() if value is not None}
        found[cell.name] = PlannedCell(name=cell.name, axes=placed, unsupported=both)
    return tuple(found.values())


def _told(config: Mapping[str, Any], axis: str) -> Any:
    """Return the plain value that a config has on an axis; None where it has none, or a part of the config there."""
    value = look_up(config, axis.lstrip("+"))
    return None if value is MISSING or isinstance(value, Mapping | list) else value


def _manifest(name: str, parts: Sequence[Part], axes: tuple[str, ...], cells: tuple[PlannedCell, ...]) -> Manifest:
    plans = [part.manifest for part in parts]
    experiments = {plan.experiment for plan in plans}
    inventory = dict.fromkeys(device for plan in plans for device in plan.site.devices)
    return plans[0].model_copy(
        update={
            "sweep": name,
            "revision": max(plan.revision for plan in plans),
            "experiment": plans[0].experiment if len(experiments) == 1 else None,
            "axes": axes,
            "cells": cells,
            "excluded": tuple(one for at, plan in enumerate(plans) for one in plan.excluded if _new(one, plans[:at])),
            "baseline": next((plan.baseline for plan in plans if plan.baseline is not None), None),
            "blocks": tuple(_block(part.name, block) for part in parts for block in part.manifest.blocks),
            "settings": _settings(parts),
            "site": plans[0].site.model_copy(update={"inventory": tuple(inventory), "kinds": ()}),
            "versions": _versions(plans),
        }
    )


def _new(excluded: Any, earlier: Sequence[Manifest]) -> bool:
    return not any(excluded in plan.excluded for plan in earlier)


def _block(sweep: str, block: PlannedBlock) -> PlannedBlock:
    runs = tuple(str(MergedName(sweep, run)) for run in block.runs)
    return block.model_copy(update={"name": str(MergedName(sweep, block.name)), "runs": runs})


def _settings(parts: Sequence[Part]) -> Settings:
    """Return the first plan's options, with all report options, and all prices, each for the hardware of its runs."""
    first, reports = parts[0].manifest.settings, [part.manifest.settings.report for part in parts]
    report = dict(first.report)
    for merged in registry.loaded("merge_options"):
        report |= merged(reports)
    return first.model_copy(update={"prices": _prices(parts), "report": report})


def _prices(parts: Sequence[Part]) -> Prices:
    """Return every plan's prices, an earlier part's first; unusable ones prevent all costs, as in one sweep."""
    given = [(part.manifest.settings.prices, part.runs) for part in parts]
    if unusable := next((prices for prices, _ in given if prices.unusable is not None), None):
        return unusable
    devices: dict[str, Price] = {}
    for prices, runs in reversed(given):
        devices |= _by_model(prices.hourly, runs)
    return Prices(
        devices=devices,
        electricity=next((prices.electricity for prices, _ in given if prices.electricity is not None), None),
        carbon=next((prices.carbon for prices, _ in given if prices.carbon is not None), None),
    )


def _by_model(devices: Mapping[str, Price], runs: Iterable[RunRow]) -> dict[str, Price]:
    """Return prices by device model. A price for all CPUs holds for the CPUs of its own sweep's machine only."""
    found = {name: price for name, price in devices.items() if name not in ACCELERATORS}
    for effective in (run.effective for run in runs if run.effective is not None):
        for model in effective.device_names if effective.accelerator in devices else ():
            found.setdefault(model, devices[effective.accelerator])
    return found


def _versions(plans: Sequence[Manifest]) -> dict[str, str]:
    names = dict.fromkeys(name for plan in plans for name in plan.versions)
    return {
        name: " and ".join(sorted({plan.versions[name] for plan in plans if name in plan.versions})) for name in names
    }

"""Projections of the best measured setting onto devices that were not measured, made from a sweep's runs.

The setting is the recommended one, or the baseline where none is. Its median rate, its measured wait for data and the
traits in its record are all that a projection starts from. Nothing here is a finding: no verdict, no metric.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.costs import epoch_samples
from accelsweep.analysis.run_results import CellRuns
from accelsweep.config.prices import Bill, Prices, usd_per_hour_on
from accelsweep.config.setting import axes_in_words
from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of
from accelsweep.features.projection.fit import sources
from accelsweep.features.projection.model import Elsewhere, Projected, Unseen
from accelsweep.features.projection.project import Anchor, Workload, break_even, project
from accelsweep.features.projection.time_model import INFERENCE, TRAINING, TRAINING_32, Form, fitted
from accelsweep.records.findings import Choice, Findings
from accelsweep.records.plan import Manifest
from accelsweep.records.run_environment import HardwareKind
from accelsweep.records.run_record import Traits

USUAL = ("h100-sxm", "a100-80", "l4", "t4", "rtx4090")
"""The devices of a report, by their keys."""

OLD = "not projected: this sweep was measured before accelsweep recorded what a forward pass does; measure it again"

TRAINS = {"train_throughput": (TRAINING, TRAINING_32), "time_to_accuracy": (TRAINING, TRAINING_32)}

FORMS_OF: Mapping[str, tuple[Form, ...]] = {**TRAINS, "inference": (INFERENCE,)}
"""The forms in which a task is projected. A task that is not here runs single operations, not a model."""

WITHOUT = {"boosting": "not projected: trees are grown by other libraries, whose work is no product of matrices"}
"""The reason why a task's settings cannot be projected, although somebody may wish for it."""

EXPECTED = {"16-mixed": "training-amp", "bf16-mixed": "training-amp", "32-true": "training-fp32"}
"""The form of a measured GPU's training, by its precision."""


@dataclass(frozen=True)
class Onto:
    """The devices to project onto, and prices by a device's key, its name, or the names that its driver has for it.

    `batch` is that of one device; None takes the measured one.
    """

    devices: tuple[Datasheet, ...]
    prices: Prices
    batch: int | None = None

    @classmethod
    def usual(cls, manifest: Manifest) -> Onto:
        """Return the devices of a report, with the sweep's prices."""
        return cls(tuple(datasheet(key) for key in USUAL), manifest.settings.prices)

    def usd_per_hour(self, one: Datasheet) -> float | None:
        """Return the price of one device's hour, None without one."""
        found = self.prices.of_names((*one.reported, one.name, one.key))
        return None if found is None else found[1].usd_per_hour

    def bills(self, one: Datasheet) -> tuple[Bill, ...]:
        """Return how one device can be paid for."""
        return self.prices.bills((*one.reported, one.name, one.key))


def build_section(analysis: Analysis) -> Elsewhere | None:
    """Return the projections of a report: onto the usual devices, with the sweep's prices."""
    return project_onto(analysis, Onto.usual(analysis.manifest))


def project_onto(analysis: Analysis, onto: Onto) -> Elsewhere | None:
    """Return the projections of the recommended setting onto these devices. None as for `elsewhere`."""
    return elsewhere(analysis.groups, analysis.weighed.recommendation.choice, analysis.names, onto)


def with_projections(findings: Findings, projections: Elsewhere) -> Findings:
    """Return the findings with other projections."""
    return findings.model_copy(update={"sections": {**findings.sections, "projection": projections}})


def elsewhere(
    groups: Sequence[CellRuns], choice: Choice | None, names: Mapping[HardwareKind, str], onto: Onto
) -> Elsewhere | None:
    """Return the projections of the chosen setting; None where the sweep runs no model, or measured nothing."""
    one = _anchored(groups, choice, names)
    if one is None or one.config is None or one.effective is None:
        return None
    if one.config.task not in FORMS_OF:
        why = WITHOUT.get(one.config.task)
        return None if why is None else Elsewhere(reason=why)
    rate, traits = _median(one, "samples_per_second"), one.measured[0].traits
    if rate is None or not isinstance(traits, Traits):
        return Elsewhere(reason=OLD if traits is None or rate is None else f"not projected: {traits}")
    if _several_gpus(one):
        return Elsewhere(reason="not projected: every measured setting has several GPUs, and projections are for one")
    forms = FORMS_OF[one.config.task]
    workload, anchor = _workload(one, traits, forms), _anchor(one, rate, onto)
    if onto.batch not in (None, workload.batch):  # a measured GPU tells nothing of its rate at another batch
        workload, anchor = replace(workload, batch=onto.batch), replace(anchor, device=None)
    pairs = [(form, target) for form in forms for target in onto.devices]
    found = tuple(project(workload, anchor, target, form, onto.usd_per_hour(target)) for form, target in pairs)
    disturbed = any(doubt.disturbing for run in one.rated for doubt in run.doubts)
    bills = _bills_here(one, onto)
    found = tuple(_by_month(target, bills, onto) for target in found)
    return Elsewhere(
        cell=one.cell,
        label=axes_in_words(one.planned.axes),
        here=one.effective.device_names[0],
        batch=workload.batch,
        rate_here=float(f"{rate:.4g}"),
        disturbed=disturbed,
        devices=tuple(_alone(one) for one in found) if disturbed else found,
        unseen=tuple(_unseen(form) for form in forms),
        sources=sources(),
    )


def projected_cell(one: CellRuns, key: str, prices: Prices) -> Projected:
    """Return the projection of one measured setting onto the board with this key, in its task's first form."""
    sheet = datasheet(key)
    forms = FORMS_OF.get(one.config.task, ()) if one.config is not None else ()
    rate = _median(one, "samples_per_second")
    traits = one.measured[0].traits if one.measured else None
    if not forms or rate is None or not isinstance(traits, Traits) or _several_gpus(one):
        why = traits if isinstance(traits, str) else "this setting has no rate of one device with its counts"
        return Projected(device=key, name=sheet.name, form=forms[0].title if forms else "", reason=why)
    onto = Onto((sheet,), prices)
    return project(_workload(one, traits, forms), _anchor(one, rate, onto), sheet, forms[0], onto.usd_per_hour(sheet))


def _alone(one: Projected) -> Projected:
    """Return a projection that is not compared with the measured rate."""
    return one.model_copy(update={"ratio": None, "cheaper": "", "monthly": ()})


def _bills_here(one: CellRuns, onto: Onto) -> tuple[Bill, ...]:
    """Return how the measured device can be paid for; what a price for its accelerator holds for, it is."""
    assert one.effective is not None, "it was measured"
    names = one.effective.device_names
    keys = [sheet.key for name in names if (sheet := datasheet_of(name)) is not None]
    return onto.prices.bills((*names, *keys, one.effective.accelerator))


def _by_month(one: Projected, here: Sequence[Bill], onto: Onto) -> Projected:
    """Return a projection with its break-evens: each way to pay for the device against each way to pay for this one."""
    if one.ratio is None:
        return one
    there = onto.bills(datasheet(one.device))
    found = tuple(break_even(ours, theirs, one.name, one.ratio) for ours in here for theirs in there)
    return one.model_copy(update={"monthly": found})


def _anchored(groups: Sequence[CellRuns], choice: Choice | None, names: Mapping[HardwareKind, str]) -> CellRuns | None:
    """Return the recommended cell's runs, else the first measured cell's; settings of several GPUs come last."""
    rated = [one for one in groups if one.rated]
    chosen = [
        one
        for one in rated
        if choice and choice.cell == one.cell and choice.hardware in (None, names.get(one.hardware))
    ]
    return next(iter(sorted([*chosen, *rated], key=_several_gpus)), None)


def _several_gpus(one: CellRuns) -> bool:
    return one.effective is not None and one.effective.world_size > 1 and one.effective.accelerator != "cpu"


def _workload(one: CellRuns, traits: Traits, forms: Sequence[Form]) -> Workload:
    assert one.effective is not None, "it was measured"
    share, step = _median(one, "data_wait_share"), _median(one, "step_seconds")
    batch = one.effective.batch_size * one.effective.world_size
    wait = None if share is None or step is None else share * step / batch
    return Workload(
        traits=traits,
        batch=batch,
        optimizer=one.effective.optimizer.partition(",")[0],
        wait_seconds=wait,
        step_flops=_median(one, "model_flops_per_sample") if forms[0].trains else None,
    )


def _anchor(one: CellRuns, rate: float, onto: Onto) -> Anchor:
    assert one.config is not None, "it was measured"
    assert one.effective is not None, "it was measured"
    names, trains = one.effective.device_names, one.config.task != "inference"
    form = EXPECTED.get(one.effective.precision)
    if not trains:
        form = INFERENCE.key if form == TRAINING.key else None
    return Anchor(
        rate=rate,
        device=datasheet_of(names[0]) if one.config.on_gpu else None,
        form=form,
        usd_per_hour=usd_per_hour_on(onto.prices, one.config, names),
        epoch_samples=epoch_samples(one),
    )


def _median(one: CellRuns, metric: str) -> float | None:
    values = one.values(metric)
    return statistics.median(values) if values else None


def _unseen(form: Form) -> Unseen:
    held = fitted()[form.key].unseen_devices
    return Unseen(
        form=form.title,
        count=held.count,
        networks=held.networks,
        devices=held.devices,
        median_error=held.median_error,
        coverage=held.coverage,
    )

"""Projects a sweep's best measured setting onto devices that were not measured.

The setting is the recommended one, or else the first measured one. A projection is based on the setting's median rate,
its measured wait for data, and the model's traits from the record. The result is not a finding: it contains no verdict
and no metrics.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.costs import epoch_samples
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.config.prices import Prices, usd_per_hour_on
from accelsweep.config.setting import label
from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of
from accelsweep.features.projection.fit import sources
from accelsweep.features.projection.model import FormError, Projection, Projections
from accelsweep.features.projection.project import Anchor, Workload, break_even, project
from accelsweep.features.projection.time_model import INFERENCE, TRAINING, TRAINING_32, Form, fitted
from accelsweep.records.findings import Findings
from accelsweep.records.plan import Manifest
from accelsweep.results import Traits

DEFAULT_DEVICES = ("h100-sxm", "a100-80", "l4", "t4", "rtx4090")
"""The keys of the devices that a report projects onto."""

TASK_FORMS: Mapping[str, tuple[Form, ...]] = {
    "train_throughput": (TRAINING, TRAINING_32),
    "time_to_accuracy": (TRAINING, TRAINING_32),
    "inference": (INFERENCE,),
}
"""The forms in which a task is projected. Tasks that are not listed do not run a network."""

PRECISION_FORMS = {"16-mixed": TRAINING.key, "bf16-mixed": TRAINING.key, "32-true": TRAINING_32.key}
"""The form for training on a measured GPU, keyed by precision."""


@dataclass(frozen=True)
class Targets:
    """The devices to project onto, and prices keyed by device key, name or driver name.

    `batch` is the batch size per device; None keeps the measured one.
    """

    devices: tuple[Datasheet, ...]
    prices: Prices
    batch: int | None = None

    @classmethod
    def default(cls, manifest: Manifest) -> Targets:
        """Return the devices that a report projects onto, with the sweep's prices."""
        return cls(tuple(datasheet(key) for key in DEFAULT_DEVICES), manifest.options.prices)


def build_section(analysis: Analysis) -> Projections | None:
    """Return the projections for a report."""
    return project_onto(analysis, Targets.default(analysis.manifest))


def with_projections(findings: Findings, projections: Projections) -> Findings:
    """Return the findings with their projections replaced."""
    return findings.model_copy(update={"sections": {**findings.sections, "projection": projections}})


def project_onto(analysis: Analysis, targets: Targets) -> Projections | None:
    """Return the projections of the chosen setting; None if the sweep has no measurements or runs no model."""
    group = _chosen(analysis)
    if group is None or group.config is None or group.effective is None:
        return None
    if group.config.task not in TASK_FORMS:
        if group.config.task != "boosting":
            return None
        return Projections(
            reason="not projected: boosted trees are trained by other libraries, without matrix products"
        )
    rate, traits = _median(group, "samples_per_second"), group.measured[0].traits
    if rate is None or not isinstance(traits, Traits):
        reason = traits if isinstance(traits, str) else "the operations of its forward pass were not recorded"
        return Projections(reason=f"not projected: {reason}")
    if _several_gpus(group):
        return Projections(reason="not projected: every measured setting uses several GPUs; projections are for one")
    forms = TASK_FORMS[group.config.task]
    workload, anchor = _workload(group, traits, forms), _anchor(group, rate, targets.prices)
    if targets.batch not in (None, workload.batch):  # a GPU's measured rate does not apply to a different batch size
        workload, anchor = replace(workload, batch=targets.batch), replace(anchor, device=None)
    disturbed = any(doubt.disturbing for run in group.rated for doubt in run.doubts)
    names = group.effective.device_names
    keys = [sheet.key for name in names if (sheet := datasheet_of(name)) is not None]
    bills = targets.prices.payment_options((*names, *keys, group.effective.accelerator))
    projections = []
    for form in forms:
        for device in targets.devices:
            projection = project(workload, anchor, device, form, _usd_per_hour(targets.prices, device))
            if disturbed:
                projection = projection.model_copy(update={"ratio": None, "cheaper": ""})
            elif projection.ratio is not None:
                theirs = targets.prices.payment_options(_price_names(device))
                pairs = [(bill, other) for bill in bills for other in theirs]
                monthly = tuple(break_even(*pair, projection.name, projection.ratio) for pair in pairs)
                projection = projection.model_copy(update={"monthly": monthly})
            projections.append(projection)
    return Projections(
        setting=group.setting,
        label=label(group.planned.axes),
        here=names[0],
        batch=workload.batch,
        rate_here=float(f"{rate:.4g}"),
        disturbed=disturbed,
        devices=tuple(projections),
        unseen=tuple(FormError(form=form.title, **fitted()[form.key].unseen_devices.model_dump()) for form in forms),
        sources=sources(),
    )


def project_setting(group: SettingRuns, key: str, prices: Prices) -> Projection:
    """Return the projection of a measured setting onto the board with this key, in the task's first form."""
    device = datasheet(key)
    forms = TASK_FORMS.get(group.config.task, ()) if group.config is not None else ()
    rate = _median(group, "samples_per_second")
    traits = group.measured[0].traits if group.measured else None
    if not forms or rate is None or not isinstance(traits, Traits) or _several_gpus(group):
        reason = traits if isinstance(traits, str) else "this setting has no single-device rate with operation counts"
        return Projection(device=key, name=device.name, form=forms[0].title if forms else "", reason=reason)
    workload, anchor = _workload(group, traits, forms), _anchor(group, rate, prices)
    return project(workload, anchor, device, forms[0], _usd_per_hour(prices, device))


def _price_names(device: Datasheet) -> tuple[str, ...]:
    return (*device.reported, device.name, device.key)


def _usd_per_hour(prices: Prices, device: Datasheet) -> float | None:
    price = prices.of_names(_price_names(device))
    return None if price is None else price[1].usd_per_hour


def _chosen(analysis: Analysis) -> SettingRuns | None:
    """Return the recommended setting, or else the first measured one; multi-GPU settings come last."""
    choice = analysis.assessment.recommendation.choice
    rated = [group for group in analysis.groups if group.rated]
    recommended = [
        group
        for group in rated
        if choice is not None
        and choice.setting == group.setting
        and choice.hardware in (None, analysis.names.get(group.hardware))
    ]
    return min([*recommended, *rated], key=_several_gpus, default=None)


def _several_gpus(group: SettingRuns) -> bool:
    return group.effective is not None and group.effective.world_size > 1 and group.effective.accelerator != "cpu"


def _workload(group: SettingRuns, traits: Traits, forms: Sequence[Form]) -> Workload:
    assert group.effective is not None, "it was measured"
    wait_share, step = _median(group, "data_wait_share"), _median(group, "step_seconds")
    batch = group.effective.batch_size * group.effective.world_size
    return Workload(
        traits=traits,
        batch=batch,
        optimizer=group.effective.optimizer.partition(",")[0],
        wait_seconds=None if wait_share is None or step is None else wait_share * step / batch,
        step_flops=_median(group, "model_flops_per_sample") if forms[0].trains else None,
    )


def _anchor(group: SettingRuns, rate: float, prices: Prices) -> Anchor:
    assert group.config is not None, "it was measured"
    assert group.effective is not None, "it was measured"
    names = group.effective.device_names
    form = PRECISION_FORMS.get(group.effective.precision)
    if group.config.task == "inference":
        form = INFERENCE.key if form == TRAINING.key else None
    return Anchor(
        rate=rate,
        device=datasheet_of(names[0]) if group.config.on_gpu else None,
        form=form,
        usd_per_hour=usd_per_hour_on(prices, group.config, names),
        epoch_samples=epoch_samples(group),
    )


def _median(group: SettingRuns, metric: str) -> float | None:
    values = group.values(metric)
    return statistics.median(values) if values else None

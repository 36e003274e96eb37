"""The table of settings: rate, speed-up, verdict, quality and doubts; each row expands to show further readings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from accelsweep import registry
from accelsweep.metrics import MEMORY_METRICS, SAMPLED, MetricInfo, metrics
from accelsweep.plain_json import sha256_text
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.run_record import doubt_description
from accelsweep.registry import Feature
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Detail, Entry, ReportTable
from accelsweep.significant_digits import (
    UNKNOWN,
    common_digits,
    is_uninformative,
    ratio_bound,
    rounded,
    rounded_interval,
)
from accelsweep.tasks import PROCESS_RATE, SIZE_METRICS

ENERGY = "joules_per_sample"

MEMORY_TITLES = {
    "peak_memory_reserved_bytes": "peak memory, reserved",
    "peak_memory_allocated_bytes": "peak memory, allocated",
    "device_memory_used_bytes": "device memory after the window",
    "process_peak_bytes": "peak memory of the largest process",
    "host_pss_bytes": "host memory after the window",
}
"""The title of each memory metric. Not all of these metrics are peaks."""


@cache
def readings() -> dict[str, tuple[str, ...]]:
    """Return the readings shown when a row is expanded: titles mapped to estimates or metrics in order of preference.

    `absent_metrics` reports readings that are missing from every setting.
    """
    titled = {name: meaning.title for name, meaning in metrics().items() if meaning.title is not None}
    of_task = {name for feature in registry.features() if feature.tasks for name in _metrics_of(feature)}
    others = {name for feature in registry.features() if not feature.tasks for name in _metrics_of(feature)} - of_task
    return {
        "Time to target": ("time_to_target", "time_to_target_seconds"),
        **{title: (name,) for name, title in titled.items() if name not in others},
        "Memory": MEMORY_METRICS,
        "Energy": (ENERGY, "energy_joules"),
        "Energy per token": ("joules_per_token",),
        **{title: (name,) for name, title in titled.items() if name in others},
        "Cost of 1M samples": ("usd_per_million_samples",),
        "Cost of 1M tokens": ("usd_per_million_tokens",),
        "Cost of an epoch": ("usd_per_epoch",),
        "Cost of a result": ("usd_per_result",),
        "MFU": ("mfu",),
    }


def _metrics_of(feature: Feature) -> Mapping[str, MetricInfo]:
    return {} if feature.metrics is None else registry.load(feature.metrics)


def settings_table(findings: Findings, pictures: Collection[str] = ()) -> ReportTable:
    """Return a table of every measured setting, fastest first; settings that missed their target come last.

    `pictures` are the names of the files beside the page to which rows link, if there are any.
    """
    measured = sorted(
        (setting for setting in findings.settings if setting.measured),
        key=lambda setting: -setting.rate.value if setting.rate else 0.0,
    )
    quality = fmt.capitalized((findings.quality_metric or "quality").removeprefix("val_"))
    rate, ratio = fmt.rate_title(findings.rate_metric), fmt.ratio_title(findings.rate_metric)
    rates = estimate_column([setting.rate for setting in measured], findings.rate_unit)
    ratios = estimate_column([setting.ratio for setting in measured], "x", ratios=True)
    qualities = estimate_column([setting.quality for setting in measured], "")
    memory = _memory_column(measured)
    columns = (
        Column("Setting"),
        *(Column(title, numeric=True) for title in (with_unit(rate.capitalize(), rates.unit), ratio.capitalize())),
        Column("Verdict"),
        *(Column(title, numeric=True) for title in (quality, with_unit(_memory_title(measured), memory.unit))),
        Column("Doubts"),
    )
    available = _available(measured)
    known = [title for title, names in readings().items() if not available.isdisjoint(names)]
    scopes = _common_scopes(measured, known)
    caption = (
        f"Measured settings, {'the largest' if findings.rate_metric in SIZE_METRICS else 'fastest'} first; each row "
        f"expands to its other readings. Intervals are in brackets; those of the {ratio}s hold simultaneously at "
        f"{fmt.share(findings.confidence)} confidence. Rates, times to a target, energy and costs are geometric means "
        "over the repeats. Quality is the mean; memory and the other readings are medians. All values of a column have "
        "as many significant digits as its narrowest interval supports."
    )
    if findings.rate_metric == PROCESS_RATE:
        caption = f"Whole processes are compared, from the start of the command to its exit. {caption}"
    return ReportTable(
        name="settings",
        title="Settings",
        caption=" ".join([caption, *(f"{title}: {scope}." for title, scope in scopes.items())]),
        columns=columns,
        rows=tuple(
            _row(findings, *cells)
            for cells in zip(measured, rates.cells, ratios.cells, qualities.cells, memory.cells, strict=True)
        ),
        data=[_csv_row(setting) for setting in findings.settings],
        empty="No setting was measured.",
        details=tuple(tuple(_details(setting, scopes, known, pictures)) for setting in measured),
    )


class Cells(NamedTuple):
    """A column's cells, which share the unit in its heading and the number of significant digits."""

    unit: str
    cells: list[Entry]


def estimate_column(estimates: Sequence[Estimate | None], unit: str, *, ratios: bool = False) -> Cells:
    """Return a cell for each estimate, with its interval below it. Ratios carry their `x` themselves."""
    scale, name = (1.0, "") if ratios else fmt.column_unit([each.value for each in estimates if each], unit)
    intervals = [
        (each.value / scale, each.low / scale, each.high / scale)
        for each in estimates
        if each and each.low is not None and each.high is not None and not is_uninformative(each.low, each.high)
    ]
    digits, suffix = common_digits(intervals, ratios=ratios), "x" if ratios else ""

    def cell(estimate: Estimate | None) -> Entry:
        if estimate is None:
            return Entry(fmt.ABSENT, tone="absent")
        value, low, high = estimate.value, estimate.low, estimate.high
        if low is None or high is None:
            return Entry(rounded(value / scale, digits) + suffix, "no interval", order=value)
        if is_uninformative(low, high):
            return Entry(ratio_bound(value, low, high) if ratios else UNKNOWN, order=value)
        middle, left, right = rounded_interval(value / scale, low / scale, high / scale, digits)
        return Entry(middle + suffix, f"[{left}, {right}]", order=value)

    return Cells(name, list(map(cell, estimates)))


_MEMORY_DIGITS = 3


def _memory_column(settings: Sequence[SettingFinding]) -> Cells:
    entries = [metric_entry(setting, MEMORY_METRICS) for setting in settings]
    scale, name = fmt.column_unit([entry.order for entry in entries if entry.order is not None], "bytes")
    cells = [
        entry
        if entry.order is None
        else Entry(rounded(entry.order / scale, _MEMORY_DIGITS), setting.memory_description, order=entry.order)
        for setting, entry in zip(settings, entries, strict=True)
    ]
    return Cells(name if any(entry.order is not None for entry in entries) else "", cells)


def _memory_title(settings: Sequence[SettingFinding]) -> str:
    """Return `Peak memory` if that is what every setting's value is."""
    used = [
        next((name for name in MEMORY_METRICS if _has_value(setting, (name,))), "process_peak_bytes")
        for setting in settings
    ]
    return "Peak memory" if used and all("peak" in MEMORY_TITLES[name] for name in used) else "Memory"


def with_unit(title: str, unit: str) -> str:
    """Return a heading with the unit of its column, such as `Rate (samples/s)`."""
    return f"{title} ({unit})" if unit else title


def _row(
    findings: Findings, setting: SettingFinding, rate: Entry, ratio: Entry, quality: Entry, memory: Entry
) -> tuple[Entry, ...]:
    repeats = "" if setting.measured == setting.planned else f"{setting.measured} of {setting.planned} repeats"
    doubts = "; ".join(doubt_description(doubt) for doubt in setting.doubts)
    if setting.ratio is None:
        is_baseline = setting.verdict is Verdict.baseline
        ratio = Entry("1x", order=1.0) if is_baseline else Entry(setting.verdict.value, tone="absent")
    quality_detail = quality_words(setting) if setting.quality else setting.quality_verdict
    return (
        Entry(setting.label, repeats, tone="baseline" if setting.setting == findings.baseline else ""),
        rate,
        ratio,
        Entry(setting.verdict.value, tone=setting.verdict.value),
        replace(quality, detail=" ".join(filter(None, (quality.detail, quality_detail)))),
        memory,
        Entry(doubts or "none", tone="doubt" if setting.doubts else "absent"),
    )


def quality_words(setting: SettingFinding) -> str:
    """Return the quality verdict without what the headings of quality and speed-up say already: `same`, `worse`."""
    return setting.quality_verdict.removeprefix("quality: ").removeprefix("faster, but ")


def _estimate_entry(value: Estimate | None) -> Entry:
    if value is None:
        return Entry(fmt.ABSENT, tone="absent")
    return Entry(*_split_interval(fmt.estimate_text(value)), order=value.value)


def _split_interval(text: str) -> tuple[str, str]:
    """Split `2.1x [2.0, 2.2]` into value and interval. The row's details give the reason for a missing interval."""
    value, bracket, interval = text.partition(" [")
    if bracket:
        return value, f"[{interval}"
    value, bracket, _ = text.partition(" (no interval")
    return value, "no interval" if bracket else ""


def metric_entry(setting: SettingFinding, names: Sequence[str]) -> Entry:
    """Return the first of the named estimates and metrics that exists for the setting, or the reason why none does."""
    if "time_to_target" in names and setting.time_to_target is not None:
        return _estimate_entry(setting.time_to_target)
    for name in names:
        if (cost := cost_of(setting, name)) is not None:
            entry = _estimate_entry(cost)
            scope = (
                setting.metrics["energy_joules"].scope
                if name == ENERGY and "energy_joules" in setting.metrics
                else None
            )
            return replace(entry, detail=" ".join(filter(None, (entry.detail, scope))))
    known = [setting.metrics[name] for name in names if name in setting.metrics]
    best = next((summary for summary in known if summary.median is not None), None)
    if best is None:
        return Entry(fmt.ABSENT, (known[0].reason or "") if known else "", tone="absent")
    return Entry(fmt.summary(best), best.scope or "", order=best.median)


def _available(settings: Iterable[SettingFinding]) -> set[str]:
    """Return the names of the estimates and metrics that have a value for any of the settings."""
    names = set[str]()
    for setting in settings:
        names.update(setting.costs, [name for name, summary in setting.metrics.items() if summary.median is not None])
        if setting.time_to_target is not None:
            names.add("time_to_target")
    return names


def _has_value(setting: SettingFinding, names: Sequence[str]) -> bool:
    """Return whether `metric_entry` finds a value."""
    if "time_to_target" in names and setting.time_to_target is not None:
        return True
    known = (setting.metrics[name] for name in names if name in setting.metrics)
    return not setting.costs.keys().isdisjoint(names) or any(summary.median is not None for summary in known)


def cost_of(setting: SettingFinding, name: str) -> Estimate | None:
    """Return one of a setting's costs, or None; energy is in joules per sample."""
    cost = setting.costs.get(name)
    return cost.model_copy(update={"unit": "J/sample"}) if cost is not None and name == ENERGY else cost


def _common_scopes(settings: Sequence[SettingFinding], known: Iterable[str]) -> dict[str, str]:
    """Return the scope of each of the `known` readings with the same scope in all settings, keyed by title."""
    common = {}
    for title in known:
        names = readings()[title]
        scopes = {_scope(setting, names) for setting in settings if _has_value(setting, names)}
        if len(settings) > 1 and len(scopes) == 1 and (scope := scopes.pop()):
            common[title] = scope
    return common


def _scope(setting: SettingFinding, names: Sequence[str]) -> str:
    known = (setting.metrics[name] for name in names if name in setting.metrics)
    return next((summary.scope or "" for summary in known if summary.median is not None), "")


def _details(
    setting: SettingFinding, common_scopes: Collection[str], known: Collection[str], pictures: Collection[str]
) -> Iterator[Detail]:
    """Yield a setting's readings, its bottleneck, verdict, reasons and doubts, and the command that measures it again.

    `common_scopes` contains the readings whose scope appears in the caption, and `known` those that are available for
    at least one setting.
    """
    for title, names in readings().items():
        entry = metric_entry(setting, names)
        if entry.order is None:
            if entry.detail and title in known:
                yield Detail(title, f"{entry.text}: {entry.detail}")
            continue
        detail = entry.detail.removesuffix(_scope(setting, names)).strip() if title in common_scopes else entry.detail
        text = fmt.share(entry.order) if title == "MFU" else entry.text
        share = setting.memory_description if title == "Memory" else ""
        yield Detail(title, ", ".join(filter(None, (text, detail, share))))
    effective = setting.effective
    if effective is not None and effective.global_batch_size not in (None, effective.batch_size):
        each = f"{effective.batch_size} on each of {effective.world_size} devices"
        each = each if effective.world_size > 1 else f"in batches of {effective.batch_size}"
        yield Detail("Batch", f"{effective.global_batch_size} samples per optimiser step, {each}")
    if setting.bottleneck is not None:
        yield Detail("Bottleneck", f"{setting.bottleneck.verdict}: {setting.bottleneck.evidence}")
    if (name := picture_of(setting)) in pictures:
        yield Detail("What the machine did", f"{name}.svg", href=f"{name}.svg")
    if setting.verdict is Verdict.baseline:
        yield Detail("Verdict", "this is the baseline that the others are compared with")
    else:
        yield Detail("Verdict", f"{setting.verdict.value}: {setting.verdict_reason}")
    if setting.rate is not None and setting.rate.low is None and setting.rate.reason:
        yield Detail("No interval", setting.rate.reason)
    if setting.quality_difference is not None:
        difference = setting.quality_difference.model_copy(update={"unit": ""})
        yield Detail("Quality against the baseline", fmt.estimate_text(difference))
    yield from (Detail("Not measured", reason) for reason in setting.reasons)
    for point in setting.runs:
        if point.earlier_attempts:
            attempts = "; ".join(f"attempt {attempt.attempt}: {attempt.reason}" for attempt in point.earlier_attempts)
            yield Detail("Measured again", f"repeat {point.repeat}, after {attempts}")
    for doubt in setting.doubts:
        text = f"{doubt_description(doubt)} ({doubt.code}): {doubt.message.rstrip('.')}. {fmt.sentence(doubt.remedy)}"
        yield Detail("Doubt", text)
    yield Detail(
        "Repeats", f"{setting.measured} of {setting.planned} measured; the setting's ID in files is {setting.setting}"
    )
    if setting.again:
        yield Detail("Measure it again", setting.again, code=True)
    if setting.trainer:
        yield Detail("Train like this", setting.trainer, code=True)


def picture_of(setting: SettingFinding) -> str:
    """Return the name of the files with what was sampled of a setting on its hardware; empty if nothing was."""
    is_sampled = any(f"{quantity}_mean" in setting.metrics for quantity in SAMPLED)
    return f"series-{setting.setting}-{sha256_text(setting.hardware or '')[:4]}" if is_sampled else ""


def absent_metrics(findings: Findings) -> list[str]:
    """Return, for each reading missing from every setting, a line with the reason, followed by the notes on costs."""
    lines, available = [], _available(findings.settings)
    for title, names in readings().items():
        if not available.isdisjoint(names):
            continue
        reasons = [
            setting.metrics[name].reason for setting in findings.settings for name in names if name in setting.metrics
        ]
        if reason := next(filter(None, reasons), None):
            lines.append(f"{title}: {fmt.absent(reason)}.")
    return lines + cost_notes(findings)


def cost_notes(findings: Findings) -> list[str]:
    """Return the prices used for the costs, with their dates and sources, and the reasons for missing costs."""
    if findings.costs_note:
        return [f"Cost: {findings.costs_note.rstrip('.')}."]
    notes = []
    for price in findings.prices:
        origin = ", ".join(filter(None, (price.source, price.date))) or "your own figure, without a source"
        notes.append(f"Priced with {price.name} at {price.value:g} {price.unit} ({origin}).")
    return notes + list(findings.cost_gaps)


def _csv_row(setting: SettingFinding) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting.setting, "label": setting.label}
    row |= {f"axis.{key}": value for key, value in setting.axes.items()}
    row |= {"hardware": setting.hardware, "planned": setting.planned, "measured": setting.measured}
    row |= _estimate_columns("rate", setting.rate)
    row |= _estimate_columns("speedup", setting.ratio)
    row |= {"speedup.paired": setting.speedup.paired if setting.speedup else None}
    row |= {"verdict": setting.verdict.value, "verdict_reason": setting.verdict_reason}
    row |= _estimate_columns("time_to_target", setting.time_to_target)
    row |= _estimate_columns("quality", setting.quality)
    row |= _estimate_columns("quality_difference", setting.quality_difference)
    for name in sorted(setting.costs):
        row |= _estimate_columns(name, cost_of(setting, name))
    row |= {"quality_verdict": setting.quality_verdict}
    row |= {"bottleneck": setting.bottleneck.verdict if setting.bottleneck else None}
    for name, summary in sorted(setting.metrics.items()):
        for column, field in _columns(name, ("median", "minimum", "maximum", "unit", "reason")):
            row[column] = getattr(summary, field)
    effective = {} if setting.effective is None else to_jsonable_python(setting.effective)
    row |= {f"effective.{key}": value for key, value in sorted(effective.items())}
    return row | {"doubts": "; ".join(doubt.code for doubt in setting.doubts), "reasons": "; ".join(setting.reasons)}


def _estimate_columns(name: str, value: Estimate | None) -> dict[str, Any]:
    fields = ("value", "low", "high", "unit", "confidence", "count", "reason")
    return {column: getattr(value, field, None) for column, field in _columns(name, fields)}


@cache  # a thousand settings share these texts
def _columns(name: str, fields: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"{name}.{field}", field) for field in fields]

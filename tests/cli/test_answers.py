"""Keys of the JSON answers are stable: removing or renaming one requires a new format."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import get_args, get_type_hints

import pytest
from pydantic import BaseModel

from accelsweep.driver.json_output import all_answers

FORM = {
    "AbAnswer": "sweep headline versions family confidence threshold rate_unit rows fail_if gate failing",
    "Version": "name kind digest python",
    "VersionedSetting": "setting against label axes rate ratio verdict reason blocks gate doubts",
    "FleetAnswer": "nodes spread tolerance hotter_by confidence correction sweep headline sick report",
    "FleetNode": (
        "node sick faults verdict reason ratio p_value celsius temperature_excess temperature_excess_p_value "
        "blocks planned throttled drivers "
        "dates"
    ),
    "NodeSpread": "setting label between within",
    "PlanAnswer": (
        "sweep revision settings unsupported excluded blocks wanted settled outdated estimate visible_effect notes "
        "warnings"
    ),
    "SettingRow": "setting label axes baseline wanted settled",
    "ReasonRow": "setting label axes reason",
    "BlockRow": "block new runs settled resources",
    "Resources": "nodes tasks cpus gpus gpu_model mem_mb minutes node_kind node",
    "PlanEstimate": "runs_left minutes gpu_hours usd usd_reason basis",
    "Span": "least expected most",
    "VisibleEffect": "effect assumption reason",
    "StatusAnswer": "sweeps unreadable unplanned",
    "UnplannedDriver": "sweep background",
    "SweepState": (
        "sweep revision planned settled remaining outcomes outdated seconds_left running kept doubts damaged driver "
        "background jobs jobs_reason recommendation report report_outdated"
    ),
    "LockOwner": "block host pid process_started job restarts since run run_since waiting_for",
    "BackgroundState": "place name host since state code follow",
    "LockedBlock": "block host pid process_started job restarts since run run_since waiting_for alive label step",
    "Job": "number block state reason nodes elapsed",
    "RunDoubt": "run label repeat doubt",
    "Doubt": "code message remedy",
    "UnreadableSweep": "sweep why",
    "RunsAnswer": "sweep rate_metric rate_unit runs",
    "ListedRun": (
        "run setting label axes repeat block attempt earlier_attempts outcome reason rate doubts disturbed started_at "
        "wall_seconds folder"
    ),
    "EarlierAttempt": "attempt reason position started_at wall_seconds",
    "CompareAnswer": ("before after family confidence threshold rate_unit rows only_before only_after fail_if failing"),
    "ComparedSetting": "setting label axes before after ratio verdict reason doubts",
    "HistoryAnswer": "sources order order_reason confidence family lines alone report",
    "HistoryLine": "setting label axes hardware machine rate_unit points changes reason",
    "LinePoint": "name source version commit local_changes committed measured rate disturbed software",
    "RateChange": "at ratio verdict software",
    "Estimate": "value low high unit confidence count reason",
    "ProjectAnswer": "reason setting label here batch rate_here disturbed devices unseen sources sweep",
    "Projection": (
        "device name form reason rate ratio usd_per_hour usd_per_million_samples usd_per_epoch "
        "joules_per_sample_at_most room limit cheaper monthly notes source"
    ),
    "Range": "value low high",
    "AdviseAnswer": (
        "headline tier choice offers changes next_steps monthly assumptions sweep epochs samples deadline_hours "
        "budget_usd"
    ),
    "Offer": (
        "tier name count key form reason hours_measured usd_measured hours_projected usd_projected usd_per_hour paid "
        "outlay_usd room in_time in_budget notes source"
    ),
    "ProfileAnswer": "sweep settings report",
    "ProfileFinding": (
        "setting label axes task started_at ranks device device_name warmup_steps steps profiled_step_seconds "
        "measured_step_seconds cost changed operators modules folder against operator_differences module_differences"
    ),
    "OperatorTime": "calls host_seconds device_seconds name",
    "ModuleTime": "calls host_seconds device_seconds name form part",
    "PartDifference": "name before after",
    "FormError": "count networks devices median_error coverage form",
    "DoctorAnswer": "able checks",
    "CheckResult": "ok what found remedy",
}
"""Every object of every answer with its keys. Keys may be added here; nothing else may change within a format."""


def fields_of(part):
    if is_dataclass(part):
        return get_type_hints(part)
    return {name: field.annotation for name, field in part.model_fields.items()}


def parts(model):
    yield model
    for annotation in fields_of(model).values():
        kinds = [annotation]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind)):
                yield from parts(kind)


def found():
    return {part.__name__: " ".join(fields_of(part)) for answer in all_answers() for part in parts(answer)}


def test_answers_have_exactly_the_documented_keys():
    assert found() == FORM


@pytest.mark.parametrize("answer", all_answers(), ids=lambda answer: answer.kind)
def test_answers_have_format_1(answer):
    assert answer.format == 1


def test_every_key_of_an_answer_has_a_description():
    places = re.compile(
        r"accelsweep\.(cli|driver|features\.\w+\.command|features\.fleet|records\.(plan|sweep_progress))\b"
    )
    ours = [part for answer in all_answers() for part in parts(answer) if places.match(part.__module__)]
    assert len(ours) > 20
    silent = [
        (part.__name__, name) for part in ours for name, field in part.model_fields.items() if not field.description
    ]
    assert silent == []

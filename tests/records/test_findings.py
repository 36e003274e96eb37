"""A setting's finding is typed and written as it is."""

from __future__ import annotations

import json

from example_sweep import effective_of
from pydantic_core import to_jsonable_python

from accelsweep.records.estimates import Estimate, Speedup, Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.results import Effective

AXES = {"devices": 2, "batch_size": 32, "precision": "32-true"}


def finding(effective: Effective | None, speedup: Speedup | None = None) -> SettingFinding:
    return SettingFinding(
        setting="3f2a", label="x2", axes=AXES, hardware=None, planned=1, measured=1, outcomes={}, reasons=(), rate=None,
        speedup=speedup, verdict=Verdict.not_yet, verdict_reason="", quality=None, quality_verdict="", metrics={},
        effective=effective, doubts=(), runs=(),
    )  # fmt: skip


def test_effective_settings_are_written_and_read_back() -> None:
    one = finding(effective_of(AXES))
    written = one.model_dump(mode="json")
    assert written["effective"] == to_jsonable_python(effective_of(AXES))
    assert SettingFinding.model_validate(json.loads(json.dumps(written))) == one
    assert SettingFinding.model_validate(one.model_dump()) == one
    assert (one.world_size, one.device_names) == (2, ("Intel Xeon (example)",))


def test_a_setting_that_was_never_measured_has_no_effective_settings() -> None:
    one = finding(None)
    assert SettingFinding.model_validate(one.model_dump(mode="json")) == one
    assert (one.accelerator, one.device_names, one.world_size, one.num_nodes) == (None, (), 1, 1)


def test_the_ratio_is_that_of_the_speed_up() -> None:
    ratio = Estimate(value=2.0, low=1.9, high=2.1, unit="x", confidence=0.95, count=3)
    assert finding(None, Speedup(ratio=ratio, paired=True)).ratio == ratio
    assert finding(None).ratio is None

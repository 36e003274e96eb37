"""A cell's bottleneck is judged from the mean of its runs' shares."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from accelsweep.analysis.setting_findings import bottleneck_of
from accelsweep.records.run_record import PARTS


class Run:
    def __init__(self, **shares):
        self._shares = {f"{part}_share": share for part, share in shares.items()}

    def value(self, metric):
        return self._shares.get(metric)


def cell(*runs, behind=()):
    return SimpleNamespace(measured=runs, values=lambda _metric: list(behind))


def whole(**given):
    return Run(**{**dict.fromkeys(PARTS, 0.0), **given})


def test_runs_count_alike():
    found = bottleneck_of(cell(whole(forward=0.9, data_wait=0.1), whole(forward=0.3, data_wait=0.7)))
    assert found.shares["forward"] == pytest.approx(0.6)
    assert (found.verdict, found.count) == ("compute-bound and input-bound", 2)


def test_a_cell_without_a_probe_pass_has_no_bottleneck():
    assert bottleneck_of(cell(Run(), Run())) is None


def test_a_part_that_was_not_told_apart_is_absent_rather_than_zero():
    run = Run(**dict.fromkeys(("forward", "backward"), 0.5))
    assert set(bottleneck_of(cell(run, whole(forward=1.0))).shares) == {"forward", "backward"}


def test_a_device_that_waits_for_the_host_shows_over_all_runs():
    found = bottleneck_of(cell(whole(forward=1.0), whole(forward=1.0), behind=[0.1, 0.3]))
    assert found.verdict == "overhead-bound"
    assert "20 %" in found.evidence

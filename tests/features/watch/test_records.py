"""What a sweep's records say about the rate of each setting."""

from __future__ import annotations

import pytest
from example_sweep import build_example_sweep

from accelsweep.errors import InputError
from accelsweep.features.watch.records import expectation_of, measured_rates
from accelsweep.records.run_record import Record


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return build_example_sweep(tmp_path)


def test_each_trained_setting_has_the_median_rate_of_its_runs(folder):
    rates = {rate.label: rate for rate in measured_rates(folder)}
    one = rates["batch 32, 32-bit, 1 device"]
    runs = [path for path in folder.root.glob("runs/*/record.json") if path.parent.name.startswith(one.setting)]
    found = sorted(Record.read(path).metrics["samples_per_second"].value for path in runs)
    assert one.runs == len(found) == 3
    assert one.samples_per_second == found[1]
    assert one.measured_on == "2026-01-05"
    assert one.global_batch_size == one.batch_size * one.world_size


def test_a_disturbed_run_does_not_count_unless_all_are(folder):
    quiet = {rate.setting: rate.runs for rate in measured_rates(folder)}
    disturbed = {
        Record.read(path).setting
        for path in folder.root.glob("runs/*/record.json")
        if any(doubt.disturbing for doubt in Record.read(path).doubts)
    }
    assert disturbed, "the example has such runs"
    assert all(quiet[setting] < 3 for setting in disturbed & quiet.keys())


@pytest.mark.parametrize("sweep", ["example", "sweeps/example"])
def test_a_sweep_is_named_as_everywhere_or_by_its_folder(folder, sweep):
    expectation = expectation_of(sweep, None, 5)
    assert (expectation.sweep, expectation.is_named, expectation.every_seconds) == ("example", False, 300.0)
    assert len(expectation.rates) == len(measured_rates(folder))


def test_a_setting_is_named_by_its_values(folder):
    expectation = expectation_of("example", "batch_size=32 devices=1 precision=32-true")
    assert expectation.is_named
    assert {(rate.batch_size, rate.world_size, rate.precision) for rate in expectation.rates} == {(32, 1, "32-true")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("exampel",), "no sweep 'exampel'"),
        (("reports/example",), "is not a sweep's folder"),
        (("example", "batch_size=33"), "matches no runnable setting"),
        (("example", None, 0), "0 minutes between two comparisons are too few"),
        (("example", None, float("nan")), "nan minutes"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder, arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        expectation_of(*arguments)


def test_a_sweep_without_a_rate_is_refused(folder):
    for path in folder.root.glob("runs/*/record.json"):
        path.unlink()
    with pytest.raises(InputError, match="example has no training measured yet: measure it with `accelsweep run`"):
        expectation_of("example")

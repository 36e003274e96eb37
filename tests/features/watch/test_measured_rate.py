"""Which of a sweep's rates a training is compared with, and the sentence where that is not clear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accelsweep.features.watch.measured_rate import Expectation, LiveSetting, MeasuredRate, choose

RATE = MeasuredRate(
    setting="a",
    label="batch 32",
    samples_per_second=1000.0,
    runs=3,
    measured_on="2026-11-20",
    machine="this",
    host="here",
    hardware={},
    software={},
    batch_size=32,
    global_batch_size=32,
    world_size=1,
    accelerator="cpu",
    precision="32-true",
    threads_per_rank=2,
)
LARGER = replace(RATE, setting="b", label="batch 64", batch_size=64)
LIVE = LiveSetting(32, 1, "cpu", "32-true")


def expecting(*rates, is_named=False):
    return Expectation("mine", rates, is_named, 300.0)


def test_an_expectation_survives_the_environment_variable():
    expectation = expecting(RATE, LARGER)
    assert Expectation.from_json(expectation.to_json()) == expectation


@pytest.mark.parametrize(
    ("live", "chosen"),
    [
        (LIVE, RATE),
        (replace(LIVE, batch_size=64), LARGER),
    ],
)
def test_a_training_is_compared_with_the_setting_that_it_shows(live, chosen):
    assert choose(expecting(RATE, LARGER), live, "this") == chosen


def test_a_rate_of_arithmetic_that_nobody_saw_suits_every_precision():
    unseen = replace(RATE, precision="unknown")
    assert choose(expecting(unseen), LIVE, "this") == unseen


@pytest.mark.parametrize(
    "other", [{"batch_size": 16}, {"world_size": 2}, {"accelerator": "cuda"}, {"precision": "bf16-mixed"}]
)
def test_a_setting_that_was_not_measured_is_not_compared(other):
    sentence = choose(expecting(RATE, LARGER), replace(LIVE, **other), "this")
    assert "which mine has not measured; it has 'batch 32', 'batch 64'" in sentence


def test_a_training_that_may_be_of_several_settings_asks_for_one():
    wider = replace(RATE, setting="c", label="batch 32 | arg.width=64")
    sentence = choose(expecting(RATE, wider), LIVE, "this")
    assert "batch 32, 32-true, 1 rank on cpu, which may be any of 'batch 32', 'batch 32 | arg.width=64'" in sentence
    assert "batch 64" not in choose(expecting(RATE, LARGER, wider), LIVE, "this")


def test_an_unseen_batch_size_leaves_only_what_else_is_seen():
    live = replace(LIVE, batch_size=None)
    assert choose(expecting(RATE), live, "this") == RATE
    assert "this training uses 32-true, 1 rank on cpu, which may be any of" in choose(
        expecting(RATE, LARGER), live, "this"
    )


def test_a_named_setting_is_taken_whatever_the_training_shows():
    assert choose(expecting(RATE, is_named=True), replace(LIVE, batch_size=7), "this") == RATE


def test_of_several_machines_this_one_counts_and_otherwise_the_latest():
    elsewhere = replace(RATE, machine="other", measured_on="2026-11-25")
    assert choose(expecting(RATE, elsewhere), LIVE, "this") == RATE
    assert choose(expecting(RATE, elsewhere), LIVE, "third") == elsewhere


def test_only_what_this_machine_measured_is_in_question():
    elsewhere = replace(RATE, setting="c", label="batch 32 | env.X=1", machine="other")
    assert choose(expecting(RATE, elsewhere), LIVE, "this") == RATE


def test_a_long_list_of_settings_is_cut():
    rates = [replace(RATE, setting=str(number), label=f"batch {number}", batch_size=number) for number in range(1, 12)]
    assert "'batch 8' and 3 more: name the setting" in choose(expecting(*rates), LIVE, "this")

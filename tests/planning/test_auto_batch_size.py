"""`batch_size: auto`: which searches a grid needs, and that their results are frozen into the plan."""

from __future__ import annotations

import pytest

from accelsweep.errors import InputError
from accelsweep.planning.auto_batch_size import SEARCH_PENDING
from accelsweep.planning.checked_grid import BatchSearchNeeded
from accelsweep.planning.plan import batch_search_plan, make_plan, write_plan
from accelsweep.records.plan import FoundBatch, Manifest

BASE = ["model=mlp", "data=digits", "optimizer=sgd", "accelerator=cpu", "batch_size=auto", "repeats=2"]


def needed_searches(home, *overrides, **options):
    with pytest.raises(BatchSearchNeeded) as needed:
        make_plan(home, [*BASE, *overrides], name="mine", **options)
    return needed.value


def results(needed, *numbers):
    """Return these numbers as the results of the pending searches, in their order."""
    pending = [name for name in needed.searches if name in needed.pending]
    return {name: batch_of(name, number) for name, number in zip(pending, numbers, strict=True)}


def batch_of(name, number):
    return FoundBatch(
        search=name, batch_size=number, largest=number, headroom=0.1, sweep="mine-largest-batch", record_sha256="0" * 64
    )


def batches(plan):
    return [(setting.axes["batch_size"], setting.unsupported) for setting in plan.manifest.settings]


def test_settings_that_differ_in_nothing_that_takes_memory_share_a_search(home):
    needed = needed_searches(home, "devices=1,2", "measure.warmup_steps=5,10", "+measure.headroom=0.2")
    assert len(needed.searches) == len(needed.pending) == 2
    assert [setting.axes for setting in needed.searches.values()] == [{"devices": 1}, {"devices": 2}]
    assert {setting.config.task for setting in needed.searches.values()} == {"largest_batch"}
    assert {setting.config.measure.headroom for setting in needed.searches.values()} == {0.2}
    assert "`accelsweep run` searches for it first" in str(needed)
    assert list(home.iterdir()) == []


def test_strategies_have_searches_of_their_own(home):
    needed = needed_searches(home, "devices=2", "trainer=default,fsdp_parts")
    assert [setting.axes for setting in needed.searches.values()] == [{"trainer": "default"}, {"trainer": "fsdp_parts"}]
    assert len(needed_searches(home, "devices=2", "trainer.strategy=ddp,fsdp").searches) == 2


def test_a_search_result_becomes_the_batch_size_of_the_setting(home):
    needed = needed_searches(home, "devices=1,2")
    plan = make_plan(home, [*BASE, "devices=1,2"], name="mine", search_results=results(needed, 118, 60))
    assert batches(plan) == [(118, None), (60, None)]
    assert [setting.config.batch_size for setting in plan.settings] == [118, 60]
    given = make_plan(home, [*BASE, "batch_size=118"], name="other").settings[0]
    assert plan.settings[0].name == given.name, "an automatic batch is that batch"
    assert [one.batch_size for one in plan.manifest.found_batches] == [118, 60]
    assert any("60, 118 per rank, found by mine-largest-batch" in note for note in plan.notes)


def test_a_plan_keeps_its_batch_sizes_whatever_later_searches_find(home):
    needed = needed_searches(home)
    first = make_plan(home, BASE, name="mine", search_results=results(needed, 118))
    write_plan(home, first)
    again = make_plan(home, BASE, name="mine", search_results=results(needed, 50))
    assert (again.manifest, again.changed) == (first.manifest, False)
    more = make_plan(home, [*BASE, "repeats=3"], name="mine")
    assert batches(more) == [(118, None)]


def test_an_axis_that_is_added_later_asks_for_its_own_searches_only(home):
    write_plan(home, make_plan(home, BASE, name="mine", search_results=results(needed_searches(home), 118)))
    needed = needed_searches(home, "precision=32-true,bf16-mixed")
    assert len(needed.searches) == 2
    (pending,) = needed.pending
    assert needed.searches[pending].config.precision == "bf16-mixed"
    grown = make_plan(home, [*BASE, "precision=32-true,bf16-mixed"], name="mine", search_results=results(needed, 99))
    assert batches(grown) == [(118, None), (99, None)]
    write_plan(home, grown)
    write_plan(home, make_plan(home, BASE, name="mine"))
    assert len(Manifest.read(home / "sweeps/mine/manifest.json").found_batches) == 2, "one that comes back is known"


def test_explicit_and_automatic_batch_sizes_can_be_mixed(home):
    line = [*BASE[:-2], "repeats=2", "batch_size=32,auto"]
    with pytest.raises(BatchSearchNeeded) as needed:
        make_plan(home, line, name="mine")
    plan = make_plan(home, line, name="mine", search_results=results(needed.value, 118))
    assert batches(plan) == [(32, None), (118, None)]
    same = make_plan(home, line, name="mine", search_results=results(needed.value, 32))
    assert batches(same) == [(32, None)]


def test_a_search_without_a_result_is_an_unsupported_row_next_to_the_explicit_batch_size(home):
    line = [*BASE[:-2], "repeats=2", "batch_size=32,auto"]
    with pytest.raises(BatchSearchNeeded) as needed:
        make_plan(home, line, name="mine")
    (name,) = needed.value.pending
    plan = make_plan(home, line, name="mine", search_results={name: "not even a batch of 1 fits"})
    assert batches(plan) == [(32, None), ("auto", "not even a batch of 1 fits")]
    assert plan.manifest.found_batches == ()


def test_unsupported_settings_need_no_search(home):
    needed = needed_searches(home, "precision=32-true,16-mixed")
    assert [setting.config.precision for setting in needed.searches.values()] == ["32-true"]
    plan = make_plan(home, [*BASE, "precision=32-true,16-mixed"], name="mine", search_results=results(needed, 118))
    assert [reason is not None and "16-mixed" in reason for _, reason in batches(plan)] == [False, True]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["task=inference"], "task=inference has none"),
        (["task=largest_batch", "measure=largest_batch"], "task=largest_batch has none"),
        (["devices=1,2", "+report.ladder=devices"], "each setting changes only one thing"),
        (["batch_size=automatic"], "must be a number of samples, or auto"),
    ],
)
def test_settings_that_cannot_be_searched_are_refused(home, line, why):
    with pytest.raises(InputError, match=why) as refusal:
        make_plan(home, [*BASE, *line], name="mine")
    assert not isinstance(refusal.value, BatchSearchNeeded)


def test_the_searches_are_a_separate_sweep(home):
    needed = needed_searches(home, "devices=1,2")
    plan = batch_search_plan(home, needed)
    assert (plan.manifest.sweep, plan.manifest.searches_for) == ("mine-largest-batch", "mine")
    assert [setting.axes for setting in plan.manifest.settings] == [{"devices": 1}, {"devices": 2}]
    (block,) = plan.manifest.blocks
    assert len(block.runs) == 2, "one search of each, the first one not twice"
    write_plan(home, plan)
    assert not batch_search_plan(home, needed).changed


def test_a_plan_without_automatic_batch_sizes_records_no_search(home):
    body = make_plan(home, [*BASE, "batch_size=8"], name="mine").manifest.body()
    assert (body["found_batches"], body["searches_for"]) == ([], None)
    assert SEARCH_PENDING not in str(body)

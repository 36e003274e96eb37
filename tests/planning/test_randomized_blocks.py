"""Randomised complete blocks: balanced, reproducible, immutable, and grown by new blocks only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_sweep import config_with

from accelsweep.config.setting import Setting
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import BlockOptions, Limits, Options
from accelsweep.devices.device_kind import Device
from accelsweep.errors import InputError
from accelsweep.planning.randomized_blocks import DesignInput, block_design, in_random_order
from accelsweep.run_config import Run

LOCAL = Site(name="local", inventory=(Device(accelerator="cpu", model="CPU", count=8),))
CLUSTER = Site(
    name="cluster",
    scheduler="slurm",
    nodes=4,
    inventory=(
        Device(accelerator="cpu", model="CPU", count=64),
        Device(accelerator="cuda", model="GPU", count=8),
    ),
    slurm={"cpus_per_gpu": 8},
)


def setting(
    name: str, accelerator: str = "cpu", devices: int = 1, num_nodes: int = 1, threads: int | None = None
) -> Setting:
    config = config_with(accelerator=accelerator, devices=devices, num_nodes=num_nodes, threads=threads, seed=7)
    return Setting(name=name, axes={"letter": name}, config=config)


def task(settings, *, repeats=3, baseline=None, site=LOCAL, run_seconds=600.0, **block) -> DesignInput:
    """Return the input of a design; the baseline runs once in each block unless `baseline_runs` is given."""
    named = {each.name: each for each in (setting(c) if isinstance(c, str) else c for c in settings)}
    options = Options(
        repeats=repeats, block=BlockOptions(**{"baseline_runs": 1} | block), limits=Limits(run_seconds=run_seconds)
    )
    return DesignInput("sweep", named, baseline or next(iter(named)), options, site)


def runs(planned) -> list[list[str]]:
    return [sorted(block.runs) for block in planned.planned]


def test_a_block_holds_one_repeat_of_each_setting():
    assert runs(block_design(task("abc"), [])) == [
        ["a-r0", "b-r0", "c-r0"],
        ["a-r1", "b-r1", "c-r1"],
        ["a-r2", "b-r2", "c-r2"],
    ]


def test_the_baseline_runs_twice_in_each_block_with_two_repeat_numbers_and_one_seed():
    blocks = block_design(task("abc", baseline_runs=BlockOptions().baseline_runs), []).new
    assert [sorted(run.name for run in block.runs) for block in blocks] == [
        ["a-r0", "a-r1", "b-r0", "c-r0"],
        ["a-r2", "a-r3", "b-r1", "c-r1"],
        ["a-r4", "a-r5", "b-r2", "c-r2"],
    ]
    assert [{run.seed for run in block.runs} for block in blocks] == [{7}, {8}, {9}]
    assert [block.resources.minutes for block in blocks] == [43] * 3  # 4 limits of 605 s and 2 minutes of start-up


def test_both_baseline_runs_can_take_any_position_in_a_block():
    blocks = block_design(task("abcdefgh", repeats=40, baseline_runs=2), []).new
    places = {tuple(place for place, run in enumerate(block.runs) if run.setting == "a") for block in blocks}
    assert len(places) > 20
    assert {place for pair in places for place in pair} == set(range(9))


def test_the_baseline_runs_no_more_often_than_there_are_other_settings():
    assert runs(block_design(task("ab", repeats=1, baseline_runs=2), [])) == [["a-r0", "b-r0"]]
    assert runs(block_design(task("abc", repeats=1, baseline_runs=9), [])) == [["a-r0", "a-r1", "b-r0", "c-r0"]]
    bounded = runs(block_design(task("abcdefgh", repeats=1, baseline_runs=2, size=3), []))
    assert [sum(run.startswith("a-") for run in block) for block in bounded] == [1] * 4


def test_a_design_with_one_baseline_run_grows_by_blocks_with_two():
    first = block_design(task("abc"), [])
    again, more = (block_design(task("abc", repeats=n, baseline_runs=2), first.new) for n in (3, 4))
    assert again == block_design(task("abc"), first.new)
    assert more.planned[:3] == first.planned
    assert [sorted((run.name, run.seed) for run in block.runs) for block in more.new] == [
        [("a-r3", 10), ("a-r4", 10), ("b-r3", 10), ("c-r3", 10)]
    ]


def test_fewer_baseline_runs_leave_existing_blocks_unchanged():
    first = block_design(task("abc", baseline_runs=2), [])
    assert block_design(task("abc"), first.new).planned == first.planned
    assert runs(block_design(task("abc", repeats=4), first.new))[3:] == [["a-r6", "b-r3", "c-r3"]]


def test_a_former_baseline_keeps_one_run_in_each_block():
    first = block_design(task("abc", baseline_runs=2), [])
    other = block_design(task("abc", baseline="b", baseline_runs=2), first.new)
    assert other.new == ()
    assert runs(other) == [["a-r0", "b-r0", "c-r0"], ["a-r2", "b-r1", "c-r1"], ["a-r4", "b-r2", "c-r2"]]


def test_the_baseline_is_counted_by_block_not_by_run():
    alone = block_design(task("abc", repeats=2, size=1), [])
    more = block_design(task("abc", repeats=3, baseline_runs=2), alone.new)
    assert [block for block in runs(more) if any(run.startswith("a-") for run in block)] == [
        ["a-r0"],
        ["a-r1"],
        ["a-r2", "a-r3", "b-r2", "c-r2"],
    ]


def test_a_remaining_baseline_is_counted_by_block():
    first = block_design(task("abc", baseline_runs=2), [])
    alone = block_design(task("a", repeats=4), first.new)
    assert runs(alone) == [["a-r0", "a-r1"], ["a-r2", "a-r3"], ["a-r4", "a-r5"], ["a-r6"]]


def test_the_order_is_random_differs_between_blocks_and_is_reproducible():
    blocks = block_design(task("abcdefgh"), []).new
    orders = [[run.setting for run in block.runs] for block in blocks]
    assert len({tuple(order) for order in orders}) == 3
    assert all(order != sorted(order) for order in orders)
    assert blocks == block_design(task("abcdefgh"), []).new
    for block in blocks:
        assert list(block.runs) == in_random_order(sorted(block.runs, key=lambda run: run.name), block.order_seed)


def test_every_position_is_equally_likely():
    """Chi-squared over 4000 seeds x 5 positions; the 99.9 % point for 4 degrees of freedom is 18.5."""
    letters = [Run.of(letter, 0, 0) for letter in "abcde"]
    first = Counter(in_random_order(letters, seed)[0].setting for seed in range(4000))
    assert sum((first[letter] - 800) ** 2 / 800 for letter in "abcde") < 18.5


def test_another_sweep_has_another_order_and_other_names():
    one, other = task("abcdefgh"), task("abcdefgh")
    other = DesignInput("another", other.settings, other.baseline, other.options, other.site)
    assert {block.name for block in block_design(one, []).new}.isdisjoint(
        block.name for block in block_design(other, []).new
    )
    assert block_design(one, []).new[0].runs != block_design(other, []).new[0].runs


def test_a_new_setting_gets_blocks_with_a_fresh_baseline():
    first = block_design(task("abc"), [])
    second = block_design(task("abcd"), first.new)
    assert second.planned[:3] == first.planned
    assert runs(second)[3:] == [["a-r3", "d-r0"], ["a-r4", "d-r1"], ["a-r5", "d-r2"]]


def test_more_repeats_get_complete_blocks():
    first = block_design(task("abc"), [])
    second = block_design(task("abc", repeats=5), first.new)
    assert runs(second)[3:] == [["a-r3", "b-r3", "c-r3"], ["a-r4", "b-r4", "c-r4"]]
    assert second.planned[:3] == first.planned


def test_fewer_repeats_need_fewer_runs_and_no_new_block():
    first = block_design(task("abc", repeats=5), [])
    fewer = block_design(task("abc", repeats=2), first.new)
    assert (fewer.planned, fewer.new) == (first.planned[:2], ())


def test_a_dropped_setting_is_no_longer_wanted_but_its_block_remains():
    first = block_design(task("abc"), [])
    fewer = block_design(task("ab"), first.new)
    assert runs(fewer) == [["a-r0", "b-r0"], ["a-r1", "b-r1"], ["a-r2", "b-r2"]]
    assert [block.name for block in fewer.planned] == [block.name for block in first.planned]
    assert fewer.planned[0].resources.minutes < first.planned[0].resources.minutes


def test_a_lost_block_is_recreated_under_its_name():
    first = block_design(task("abc"), [])
    again = block_design(task("abc"), [first.new[0], first.new[2]])
    assert again.new == (first.new[1],)


def test_the_baseline_alone_is_measured_too():
    assert runs(block_design(task("a"), [])) == [["a-r0"], ["a-r1"], ["a-r2"]]
    assert runs(block_design(task("a", repeats=4), block_design(task("a"), []).new))[3:] == [["a-r3"]]


def test_another_baseline_uses_the_blocks_that_hold_it():
    first = block_design(task("abc"), [])
    other = block_design(task("abc", baseline="b"), first.new)
    assert (other.planned, other.new) == (first.planned, ())


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_bounded_block_keeps_its_baseline(size):
    planned = block_design(task("abcdefgh", size=size), [])
    assert all(len(block.runs) <= size for block in planned.planned)
    assert all(any(run.startswith("a-") for run in block.runs) for block in planned.planned)
    counts = Counter(run.rpartition("-r")[0] for block in planned.planned for run in block.runs)
    assert {counts[letter] for letter in "bcdefgh"} == {3}
    sizes = [len(block.runs) for block in planned.planned]
    assert max(sizes) - min(sizes) <= 1


def test_bounded_blocks_reshuffle_their_settings_in_each_repeat():
    planned = block_design(task("abcdefgh", size=5, repeats=5), [])
    parts = {frozenset(run[0] for run in block.runs) for block in planned.planned}
    assert len(parts) > 4


def test_blocks_of_one_run_hold_no_additional_baseline():
    planned = block_design(task("abc", size=1), [])
    assert sorted(run for block in planned.planned for run in block.runs) == sorted(
        f"{letter}-r{k}" for letter in "abc" for k in range(3)
    )
    assert all(len(block.runs) == 1 for block in planned.planned)


def test_block_minutes_bound_the_time_limits():
    planned = block_design(task("abcdefgh", minutes=30, run_seconds=295), [])
    assert all(block.resources.minutes <= 30 for block in planned.planned)
    assert max(len(block.runs) for block in planned.planned) > 2


def test_a_block_too_short_for_a_run_is_refused():
    with pytest.raises(InputError, match=r"block\.minutes=5"):
        block_design(task("a", minutes=5), [])


def test_one_machine_puts_all_settings_into_one_block():
    mixed = [setting("a"), setting("b", devices=4)]
    assert runs(block_design(task(mixed, repeats=1), [])) == [["a-r0", "b-r0"]]


@pytest.mark.parametrize(
    ("baseline", "other", "site"),
    [
        (setting("a"), setting("b", threads=1), LOCAL),
        (setting("a", "cuda"), setting("b"), LOCAL),
        (setting("a"), setting("b", threads=1), CLUSTER),
    ],
    ids=["all cores", "a GPU", "all cores of a whole node"],
)
def test_a_baseline_that_needs_more_than_the_others_shares_their_blocks(baseline, other, site):
    """In separate blocks, they could never be compared."""
    found = block_design(task([baseline, other], repeats=1, site=site), [])
    assert runs(found) == [["a-r0", "b-r0"]]
    assert found.new[0].resources.cpus == site.count("cpu")


def test_on_shared_nodes_a_baseline_adds_no_cores_to_a_block():
    shared = CLUSTER.model_copy(update={"slurm": CLUSTER.slurm.model_copy(update={"exclusive": False})})
    assert runs(block_design(task([setting("a"), setting("b", threads=1)], repeats=1, site=shared), [])) == [
        ["b-r0"],
        ["a-r0"],
    ]


def test_a_cluster_has_a_block_per_resource_class_with_the_baseline_where_it_fits():
    settings = [
        setting("one", "cuda"),
        setting("four", "cuda", 4),
        setting("nodes", "cuda", 8, 2),
        setting("cpu", "cpu", 4),
    ]
    planned = block_design(task(settings, repeats=1, site=CLUSTER), [])
    assert runs(planned) == [["four-r0", "one-r0"], ["nodes-r0", "one-r1"], ["cpu-r0"]]
    assert [(b.resources.gpus, b.resources.nodes, b.resources.cpus) for b in planned.planned] == [
        (4, 1, 32),
        (16, 2, 64),
        (0, 1, 64),
    ]


@pytest.mark.parametrize(
    ("nodes", "repeats", "size", "blocks"), [(1, 3, None, 3), (12, 3, None, 12), (100, 1, None, 4), (12, 3, 25, 3)]
)
def test_a_large_sweep_on_a_cluster_occupies_all_nodes(nodes, repeats, size, blocks):
    """24 settings besides the baseline; a job has at least 6 of them, and an explicit size is respected."""
    site = CLUSTER.model_copy(update={"nodes": nodes})
    planned = block_design(
        task([setting(f"c{number}") for number in range(25)], repeats=repeats, site=site, size=size), []
    )
    assert len(planned.planned) == blocks
    assert all(any(run.startswith("c0-") for run in block.runs) for block in planned.planned)


def test_names_do_not_depend_on_limits_but_on_runs_and_configs():
    names = {block.name for block in block_design(task("abc"), []).new}
    assert names == {block.name for block in block_design(task("abc", run_seconds=5), []).new}
    other = [replace(c, config=config_with(**c.config.raw, root="/x")) for c in map(setting, "abc")]
    assert names.isdisjoint(block.name for block in block_design(task(other), []).new)
    assert all(len(name) == 13 and name.startswith("b") for name in names)


steps = st.lists(
    st.tuples(
        st.sets(st.sampled_from("abcdef"), min_size=1),
        st.integers(1, 4),
        st.sampled_from([None, 1, 2, 3, 4, 5]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_however_a_plan_changes_no_block_changes_and_no_run_is_planned_twice(history):
    blocks = {}
    for letters, repeats, size, baseline_runs in history:
        wanted = task(sorted(letters), repeats=repeats, size=size, baseline_runs=baseline_runs)
        planned = block_design(wanted, list(blocks.values()))
        for block in planned.new:
            assert block.name not in blocks
            blocks[block.name] = block
        names = [run for block in planned.planned for run in block.runs]
        assert len(names) == len(set(names))
        counts = Counter(name.rpartition("-r")[0] for name in names)
        assert all(counts[letter] == repeats for letter in letters if letter != wanted.baseline)
        assert counts[wanted.baseline] >= repeats
        assert all(set(block.runs) <= {run.name for run in blocks[block.name].runs} for block in planned.planned)
        again = block_design(wanted, list(blocks.values()))
        assert again.new == ()
        assert sorted(again.planned, key=lambda b: b.name) == sorted(planned.planned, key=lambda b: b.name)
    every = [run.name for block in blocks.values() for run in block.runs]
    assert len(every) == len(set(every))

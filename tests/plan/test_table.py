"""The rows of `accelsweep plan`."""

from accelsweep.planning.cost_estimate import plan_table
from accelsweep.planning.plan import make_plan, write_plan


def test_rows_tell_what_is_wanted_settled_unsupported_and_excluded(home):
    plan = make_plan(
        home,
        [
            "experiment=quickstart",
            "exclude=[{when: {devices: 2, batch_size: 32, accelerator: cpu}, because: too small}]",
        ],
    )
    baseline = plan.manifest.baseline
    settled = [f"{baseline}-r0", f"{baseline}-r1"]
    table = plan_table(plan, settled)
    assert (table.sweep, table.revision, table.wanted, table.settled) == ("quickstart", 1, 35, 2)
    assert [(row.label, row.wanted, row.settled) for row in table.settings if row.baseline] == [
        ("cpu x1 | 32-true | batch 32", 10, 2)
    ]
    assert len(table.settings) == 6
    assert {row.reason for row in table.unsupported} == {"the site 'local' has no CUDA devices"}
    assert [(row.label, row.reason) for row in table.excluded] == [
        ("cpu x2 | 32-true | batch 32", "too small"),
        ("cpu x2 | bf16-mixed | batch 32", "too small"),
    ]
    assert [(row.new, row.runs, row.settled) for row in table.blocks] == [(True, 7, 2), *[(True, 7, 0)] * 4]
    assert table.estimate.runs_left == 33
    assert table.visible_effect.effect > 0.02


def test_blocks_that_stand_are_not_new(home):
    write_plan(home, make_plan(home, ["experiment=quickstart"]))
    table = plan_table(make_plan(home, ["experiment=quickstart", "repeats=6"]))
    assert [row.new for row in table.blocks] == [*[False] * 5, True]

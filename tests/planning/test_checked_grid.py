"""Settings are selected by dotted keys, lists of values and names of config groups."""

import pytest
from tiny_sweep import config_with

from accelsweep.config.grid import CheckedPoint
from accelsweep.errors import InputError
from accelsweep.planning.checked_grid import excluded_by, matches, refuse_unknown_keys
from accelsweep.planning.config_validation import Rule
from accelsweep.planning.plan import make_plan

POINT = CheckedPoint(
    axes={},
    config=config_with(devices=2, flag=True, model={"width": 4, "sizes": [1, 2]}, one=1),
    choices={"model": "small_cnn", "data": "digits"},
    added=frozenset(),
)


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ({"devices": 2}, True),
        ({"devices": [1, 2]}, True),
        ({"devices": [1, 3]}, False),
        ({"devices": 2, "precision": "bf16-mixed"}, False),
        ({"model.width": 4}, True),
        ({"model": {"width": 4}}, True),  # as given by `+baseline.model.width=4`
        ({"model": {"width": 5}}, False),
        ({"model": "small_cnn"}, True),
        ({"model": ["mlp", "small_cnn"]}, True),
        ({"model": "mlp"}, False),
        ({"data": "digits"}, True),
        ({"model.sizes": [1, 2]}, True),
        ({"flag": True}, True),
        ({"one": True}, False),
        ({"flag": 1}, False),
        ({"absent": None}, False),
        ({}, True),
    ],
)
def test_a_point_matches_if_every_key_has_one_of_its_values(wanted, answer):
    assert matches(wanted, POINT) is answer


def test_the_first_rule_that_matches_gives_the_reason():
    rules = [
        Rule(when={"devices": 1}, because="a"),
        Rule(when={"devices": 2}, because="b"),
        Rule(when={"one": 1}, because="c"),
    ]
    assert excluded_by(rules, POINT) == "b"
    assert excluded_by(rules[:1], POINT) is None


def test_a_key_that_no_point_has_is_refused_with_the_nearest_key():
    with pytest.raises(InputError, match=r"'model\.widht'.*'model\.width'.*conf/base"):
        refuse_unknown_keys({"model.widht": 4}, [POINT], "exclude.0.when", lambda _key: "conf/base.yaml")
    refuse_unknown_keys({"model": "x", "data": "y", "one": 3}, [POINT], "exclude.0.when", str)


def test_excluded_settings_are_listed_with_their_reason(home, own_conf):
    own_conf(
        {
            "experiment/mine.yaml": """\
# @package _global_
hydra: {sweeper: {params: {devices: "1,2", batch_size: "8,16"}}}
exclude:
  - {when: {devices: 2, batch_size: [8]}, because: too small to split}
  - {when: {batch_size: 99}, because: never there}
"""
        }
    )
    plan = make_plan(home, ["experiment=mine"])
    (dropped,) = plan.manifest.excluded
    assert (dropped.axes, dropped.because) == ({"devices": 2, "batch_size": 8}, "too small to split")
    assert len(plan.manifest.settings) == 3
    assert any("never there" in note for note in plan.notes)


def test_the_baseline_is_the_first_supported_setting_that_matches(home):
    axes = ["batch_size=8,16", "precision=16-mixed,32-true", "accelerator=cpu"]

    def baseline(*more):
        plan = make_plan(home, [*axes, *more])
        return next(setting.axes for setting in plan.settings if setting.name == plan.manifest.baseline), plan.notes

    assert baseline("++baseline={batch_size: 16}") == ({"batch_size": 16, "precision": "32-true"}, ())
    found, notes = baseline("++baseline={precision: 16-mixed}")
    assert found == {"batch_size": 8, "precision": "32-true"}
    assert "no supported setting matches" in notes[0]
    found, notes = baseline()
    assert found == {"batch_size": 8, "precision": "32-true"}
    assert "no baseline is set" in notes[0]


def test_a_grid_that_cannot_run_at_all_is_planned_without_blocks(home):
    plan = make_plan(home, ["accelerator=cuda"])
    assert plan.manifest.blocks == ()
    assert plan.manifest.baseline is None
    assert plan.settings[0].unsupported

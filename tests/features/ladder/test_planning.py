"""A ladder drops the keys that the model, data or optimiser does not have."""

import pytest

from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan

pytestmark = pytest.mark.heavy

LADDER = """\
# @package _global_
defaults:
  - /step: null
hydra: {sweeper: {params: {step: "0_first,1_resident,2_batch,3_layout,4_both"}}}
report: {ladder: step}
"""
STEPS = {
    "step/0_first.yaml": "# @package _global_\nmodel: {layout: plain}\n",
    "step/1_resident.yaml": "# @package _global_\ndefaults: [0_first, _self_]\ndata: {placing: resident}\n",
    "step/2_batch.yaml": "# @package _global_\ndefaults: [1_resident, _self_]\nbatch_size: 128\n",
    "step/3_layout.yaml": "# @package _global_\ndefaults: [2_batch, _self_]\nmodel: {layout: other}\n",
    "step/4_both.yaml": """\
# @package _global_
defaults: [3_layout, _self_]
precision: bf16-mixed
data: {nested: {a: 1}}
""",
}


@pytest.fixture
def ladder(home, own_conf):
    """Plan the ladder with these overrides; return its settings by the values of their axes."""
    own_conf({"experiment/steps.yaml": LADDER, **STEPS})

    def planned(*overrides):
        plan = make_plan(home, ["experiment=steps", "accelerator=cpu", *overrides])
        return {(setting.axes["step"], *list(setting.axes.values())[1:]): setting for setting in plan.settings}

    return planned


def test_a_rung_that_would_change_nothing_is_unsupported_and_names_its_keys(ladder):
    settings = ladder("model=mlp", "data=digits")
    assert [step for (step,), setting in settings.items() if setting.unsupported] == ["1_resident", "3_layout"]
    assert settings[("1_resident",)].unsupported == (
        "this rung would set data.placing=resident, but the config of accelsweep.workloads.datasets.Digits has no such "
        "key; if the class accepts it, add it to a config file of your own, conf/data/NAME.yaml"
    )
    assert "model.layout=other" in settings[("3_layout",)].unsupported


def test_a_dropped_key_does_not_reach_later_rungs(ladder):
    settings = ladder("model=mlp", "data=digits")
    last = settings[("4_both",)].config
    assert (last.batch_size, last.precision) == (128, "bf16-mixed")
    assert {"placing", "nested"}.isdisjoint(last.data)
    assert "layout" not in last.model


def test_a_key_in_a_config_file_of_the_user_is_set(ladder, own_conf):
    own_conf({"data/mine.yaml": "_target_: torch.nn.Identity\nplacing: loader\nnested: {a: 0}\n"})
    settings = ladder("model=mlp", "data=mine")
    assert settings[("1_resident",)].unsupported is None
    assert settings[("4_both",)].config.data["placing"] == "resident"


def test_an_override_on_the_command_line_applies_to_every_rung(ladder):
    settings = ladder("model=mlp", "data=digits", "batch_size=16")
    assert {setting.config.batch_size for setting in settings.values()} == {16}


def test_keys_are_dropped_separately_for_every_value_of_another_axis(ladder):
    settings = ladder("model=mlp,small_cnn", "data=digits")
    assert [step for step, setting in settings.items() if setting.unsupported] == [
        (step, model) for step in ("1_resident", "3_layout") for model in ("mlp", "small_cnn")
    ]


def test_without_a_ladder_no_key_is_dropped(ladder):
    classes = ["model._target_=torch.nn.Identity", "data._target_=torch.nn.Identity"]  # they accept any argument
    settings = ladder("model=mlp", "data=digits", "report.ladder=null", *classes)
    assert settings[("4_both",)].config.data["placing"] == "resident"


@pytest.mark.parametrize(("axis", "nearest"), [("stepp", " (did you mean 'step'?)"), ("batch_size", "")])
def test_a_ladder_over_an_unknown_axis_is_refused_with_the_axes_there_are(ladder, home, axis, nearest):
    with pytest.raises(InputError) as caught:
        ladder("model=mlp", f"report.ladder={axis}")
    message = str(caught.value)
    assert f"report.ladder={axis}: is not an axis of the grid{nearest}; they are: step; look in" in message
    assert "steps.yaml" in message
    assert not (home / "sweeps").exists()


def test_a_ladder_without_any_axis_is_refused(home):
    with pytest.raises(InputError, match=r"report.ladder=rung: is not an axis of the grid; nothing is swept"):
        make_plan(home, ["+report.ladder=rung"])


def test_a_single_rung_may_be_measured_alone_with_a_note(home):
    plan = make_plan(home, ["experiment=ladder", "accelerator=cpu", "rung=2_resident_data"])
    assert len(plan.settings) == 1
    assert any("report.ladder=rung: rung has one value here, so there is no ladder" in note for note in plan.notes)


def test_no_rung_of_the_shipped_ladder_is_unsupported_for_a_plain_network(home):
    """`model=supervised` has the keys of every rung."""
    network = "model.network._target_=torch.nn.Identity"
    plan = make_plan(home, ["experiment=ladder", "accelerator=cpu", "model=supervised", network])
    assert [setting.unsupported for setting in plan.settings] == [None] * 8
    steps = {setting.axes["rung"]: setting.config for setting in plan.settings}
    executions = {(step.channels_last, step.compile) for step in steps.values()}
    assert executions == {(False, None), (True, None), ("auto", None), ("auto", "default")}
    assert (steps["4_channels_last"].channels_last, steps["7_compiled"].compile) == (True, "default")

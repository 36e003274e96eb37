"""What would fail every run of a setting, or change nothing, is refused before anything is written."""

import pytest
import yaml

from accelsweep.config.schema import MODELS
from accelsweep.errors import EXIT_INPUT, InputError
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import make_plan
from accelsweep.run_config import Measure
from accelsweep.trainer_arguments import RESERVED_ARGUMENTS, strategy_names, trainer_arguments


def refusal(home, *overrides):
    before = sorted(home.rglob("*"))
    with pytest.raises(InputError) as refused:
        make_plan(home, ["accelerator=cpu", *overrides])
    assert refused.value.exit_code == EXIT_INPUT
    assert sorted(home.rglob("*")) == before, "nothing is written"
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_a_misspelt_key_of_measure_in_an_experiment_is_refused(home, own_conf):
    """It was accepted, and the sweep measured for as long as it always does."""
    own_conf({"experiment/mine.yaml": "# @package _global_\nmeasure: {min_second: 30}\n"})
    message = refusal(home, "experiment=mine")
    assert "unknown key 'measure.min_second' (did you mean 'min_seconds'?)" in message
    assert "mine.yaml" in message


def test_no_key_of_ones_own_is_advised_where_none_is_taken(home):
    for key in ("measure.min_second", "limits.run_second", "analysis.treshold", "block.sise"):
        message = refusal(home, f"{key}=3")
        assert "did you mean" in message
        assert f"+{key}" not in message
    assert "unknown key 'measure.min_second'" in refusal(home, "+measure.min_second=3")


def test_every_key_of_measure_has_its_default_in_the_file():
    """So a key that only the check knows cannot be. Those of one task or of one pass have own files."""
    default, frontier, operators = (
        yaml.safe_load((shipped_root() / f"conf/measure/{name}.yaml").read_text())
        for name in ("default", "frontier", "operators")
    )
    own = frontier.keys() - default.keys() - {"defaults"}
    asked_for = operators.keys() - {"defaults"}
    assert default.keys() | own | asked_for == set(MODELS[Measure].model_fields)
    assert {MODELS[Measure].model_fields[key].default for key in asked_for} == {None}
    assert {key: frontier[key] for key in own} == {key: MODELS[Measure].model_fields[key].default for key in own}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["measure.warmup_steps=1"], ["measure.warmup_steps=1: must be at least 2", "default.yaml"]),
        (["measure.warmup_steps=0,30"], ["measure.warmup_steps=0: must be at least 2"]),
        (["measure.max_steps=99"], ["measure.max_steps=99: must be at least measure.min_steps=100", "default.yaml"]),
        (["measure.min_steps=100,60000"], ["measure.max_steps=50000", "measure.min_steps=60000"]),
        (["measure.min_seconds=600"], ["measure.min_seconds=600: must be less than limits.run_seconds=600"]),
        (["measure.min_seconds=5,700"], ["measure.min_seconds=700"]),
        (["limits.run_seconds=5"], ["measure.min_seconds=5", "limits.run_seconds=5"]),
        (["task=inference", "measure.max_steps=99"], ["measure.max_steps=99"]),
        (["task=kernels", "model=kernel_copy", "measure.warmup_steps=1"], ["measure.warmup_steps=1"]),
        (["task=time_to_accuracy", "measure.target=0.9", "measure.warmup_steps=1"], ["measure.warmup_steps=1"]),
        (["+trainer.min_steps=7"], ["trainer.min_steps", "decided by measure.min_steps", "look in"]),
        (["+trainer.max_epochs=3,0"], ["trainer.max_epochs=0: must be a whole number above 0"]),
        (["+trainer.logger=false,true"], ["trainer.logger", "go into the record"]),
        (["+trainer.precision=16-mixed"], ["the top-level key precision"]),
        (["+trainer.gradient_clip_vla=1"], ["no argument of Lightning's Trainer (did you mean 'gradient_clip_val'?)"]),
        (["+data.batch_size=64"], ["data.batch_size", "top-level batch_size", "batch_size=VALUE"]),
        (["+data.batch_size=32,64"], ["data.batch_size"]),
        (["+data.batch_size=128", "devices=2"], ["data.batch_size"]),
        (["data.batch_size=3"], ["unknown key 'data.batch_size'", "did you mean 'batch_size'?); look in"]),
    ],
)
def test_what_no_run_can_measure_is_refused_by_the_plan(home, overrides, words):
    message = refusal(home, *overrides)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    "overrides",
    [
        ["measure.warmup_steps=2", "measure.min_steps=7", "measure.max_steps=7"],
        ["limits.run_seconds=5.1"],
        ["+trainer.gradient_clip_val=0.5,1"],
        ["+trainer.max_epochs=3", "+trainer.limit_val_batches=5"],
        ["+data.batch_size=32", "devices=2", "batch_size=16"],
        ["measure.max_steps=50,500", "exclude=[{when: {measure.max_steps: 50}, because: it is too short}]"],
    ],
)
def test_what_runs_can_measure_is_planned(home, overrides):
    assert make_plan(home, ["accelerator=cpu", *overrides]).manifest.settings


def test_nothing_that_a_run_refuses_is_a_default_of_ours():
    assert set(yaml.safe_load((shipped_root() / "conf/trainer/default.yaml").read_text())).isdisjoint(
        RESERVED_ARGUMENTS
    )


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["+flavour=a,b"], "flavour"),
        (["+my.flavour=1,2"], "my.flavour"),
        (["+flavour=a,b", "+twin=${flavour}"], "flavour"),
        (["+flavour=a,b", "batch_size=16,32"], "flavour"),
        (["+flavour=a,b", "+width=4,8", "model.width=${width}"], "flavour"),
        (["+lists=[1],[2]"], "lists"),
    ],
)
def test_a_swept_key_of_ones_own_that_nothing_refers_to_is_refused(home, overrides, key):
    """All of its settings would measure the same, and the report would say so with confidence."""
    message = refusal(home, *overrides)
    assert message.startswith(f"{key} has several values, and nothing refers to it"), message
    assert f"${{{key}}}" in message


def test_a_swept_group_of_ones_own_that_nothing_refers_to_is_refused(home, own_conf):
    own_conf({"setup/a.yaml": "rows: 1\n", "setup/b.yaml": "rows: 2\n"})
    assert refusal(home, "+setup=a,b").startswith("setup has several values")


@pytest.mark.parametrize(
    "overrides",
    [
        ["+width=4,8", "model.width=${width}"],
        ["+flavour=a,b", "+env.FLAVOUR=${flavour}"],
        ["+my.width=4,8", "+twin=${my}", "model.width=${twin.width}"],
        ["+width=4,8", "model=small_cnn,mlp", "model.width=${width}"],
        ["+flavour=a"],
        ["+env.FLAVOUR=a,b"],
        ["model._target_=torch.nn.Identity", "model.flavour=a,b"],
        ["+flavour=a,b", "exclude=[{when: {flavour: b}, because: one is enough}]"],
    ],
)
def test_a_key_of_ones_own_that_something_refers_to_is_an_axis(home, overrides):
    assert make_plan(home, ["accelerator=cpu", *overrides]).manifest.settings


def test_a_swept_group_that_lies_over_the_whole_config_is_an_axis(home, own_conf):
    sizes = {"small": 16, "large": 64}
    own_conf({f"setup/{name}.yaml": f"# @package _global_\nbatch_size: {sizes[name]}\n" for name in sizes})
    plan = make_plan(home, ["accelerator=cpu", "+setup=small,large"])
    assert sorted(setting.config.batch_size for setting in plan.settings) == [16, 64]


def test_an_argument_of_the_trainer_is_sent_to_the_trainer(home, own_conf):
    """Obeying `+gradient_clip_val=0.5` planned a key that nothing reads."""
    advised = "+trainer.gradient_clip_val=0.5"
    message = refusal(home, "gradient_clip_val=0.5")
    assert advised in message
    assert "of your own" not in message
    assert make_plan(home, ["accelerator=cpu", advised]).settings[0].config.trainer["gradient_clip_val"] == 0.5
    assert "+trainer.gradient_clip_val=VALUE" in refusal(home, "+gradient_clip_val=0.5,1")
    assert "decided by measure.*" in refusal(home, "min_epochs=3")
    assert advised in refusal(home, "trainer.gradient_clip_val=0.5")
    assert "decided by measure.*" in refusal(home, "trainer.min_epochs=3")
    misspelt = refusal(home, "trainer.gradient_clip_vla=0.5")
    assert "did you mean 'trainer.gradient_clip_val'" in misspelt
    assert "of your own" not in misspelt
    assert "did you mean 'trainer.benchmark'" in refusal(home, "benchmark=true")
    (note,) = [note for note in make_plan(home, ["+gradient_clip_val=1"]).notes if "gradient_clip_val" in note]
    assert "+trainer.gradient_clip_val" in note
    own_conf({"experiment/mine.yaml": "# @package _global_\ngradient_clip_val: 0.5\n"})
    message = refusal(home, "experiment=mine")
    assert "under `trainer`" in message
    assert "mine.yaml" in message


@pytest.mark.real
def test_the_trainers_arguments_are_those_of_the_trainer_itself():
    import inspect

    from lightning.pytorch import Trainer

    arguments = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    assert trainer_arguments() == arguments
    assert set(RESERVED_ARGUMENTS) <= arguments


def test_a_misspelt_strategy_is_refused_and_one_of_another_package_is_not(home):
    assert "Lightning has no such strategy (did you mean 'ddp'?)" in refusal(home, "trainer.strategy=dpp")
    assert make_plan(home, ["accelerator=cpu", "trainer.strategy=ddp,colossalai"]).settings


def test_the_strategies_read_in_lightnings_source_are_those_that_it_registers():
    from lightning.pytorch.strategies import StrategyRegistry

    deprecated, ours = {"single_tpu"}, {"side_by_side"}  # another test may have registered ours
    assert set(StrategyRegistry.available_strategies()) - deprecated - ours <= strategy_names()

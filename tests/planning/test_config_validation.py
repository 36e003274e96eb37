"""Configs that no run could measure, or whose axes change nothing, are refused before anything is written."""

from __future__ import annotations

import pytest
import yaml

from accelsweep.config.schema import MODELS
from accelsweep.errors import EXIT_INPUT, InputError
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import make_plan
from accelsweep.run_config import Measure
from accelsweep.trainer_arguments import RESERVED_ARGUMENTS


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
    """It used to be accepted without effect."""
    own_conf({"experiment/mine.yaml": "# @package _global_\nmeasure: {min_second: 30}\n"})
    message = refusal(home, "experiment=mine")
    assert "unknown key 'measure.min_second' (did you mean 'min_seconds'?)" in message
    assert "mine.yaml" in message


def test_adding_a_key_is_not_suggested_where_keys_are_fixed(home):
    for key in ("measure.min_second", "limits.run_second", "analysis.treshold", "block.sise"):
        message = refusal(home, f"{key}=3")
        assert "did you mean" in message
        assert f"+{key}" not in message
    assert "unknown key 'measure.min_second'" in refusal(home, "+measure.min_second=3")


def test_every_key_of_measure_has_its_default_in_the_file():
    """No key may be known to the check alone. Keys of one task or of one pass have files of their own."""
    default, largest_batch, operators = (
        yaml.safe_load((shipped_root() / f"conf/measure/{name}.yaml").read_text())
        for name in ("default", "largest_batch", "operators")
    )
    own = largest_batch.keys() - default.keys() - {"defaults"}
    asked_for = operators.keys() - {"defaults"}
    assert default.keys() | own | asked_for == set(MODELS[Measure].model_fields)
    assert {MODELS[Measure].model_fields[key].default for key in asked_for} == {None}
    assert {key: largest_batch[key] for key in own} == {key: MODELS[Measure].model_fields[key].default for key in own}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["measure.warmup_steps=1"], ["measure.warmup_steps=1: must be at least 2", "default.yaml"]),
        (["measure.warmup_steps=0,30"], ["measure.warmup_steps=0: must be at least 2"]),
        (["measure.max_steps=99"], ["measure.max_steps=99: must be at least measure.min_steps=100", "default.yaml"]),
        (["measure.min_steps=100,60000"], ["measure.max_steps=50000", "measure.min_steps=60000"]),
        (["measure.min_seconds=600"], ["measure.min_seconds=600: must be less than limits.run_seconds=600"]),
        (["measure.min_seconds=5,700"], ["measure.min_seconds=700"]),
        (["measure.max_seconds=4"], ["measure.max_seconds=4: must be at least measure.min_seconds=5"]),
        (["limits.run_seconds=5"], ["measure.min_seconds=5", "limits.run_seconds=5"]),
        (["task=inference", "measure.max_steps=99"], ["measure.max_steps=99"]),
        (["task=kernels", "model=kernel_copy", "measure.warmup_steps=1"], ["measure.warmup_steps=1"]),
        (["task=time_to_accuracy", "measure.target=0.9", "measure.warmup_steps=1"], ["measure.warmup_steps=1"]),
        (["+trainer.min_steps=7"], ["trainer.min_steps", "controlled by measure.min_steps", "look in"]),
        (["+trainer.max_epochs=3,0"], ["trainer.max_epochs=0: must be an integer of at least 1"]),
        (["+trainer.logger=false,true"], ["trainer.logger", "logged values to the record"]),
        (["+trainer.precision=16-mixed"], ["the top-level key precision"]),
        (
            ["+trainer.gradient_clip_vla=1"],
            ["not an argument of Lightning's Trainer (did you mean 'gradient_clip_val'"],
        ),
        (["+data.batch_size=64"], ["data.batch_size", "top-level batch_size", "batch_size=VALUE"]),
        (["+data.batch_size=32,64"], ["data.batch_size"]),
        (["+data.batch_size=128", "devices=2"], ["data.batch_size"]),
        (["data.batch_size=3"], ["unknown key 'data.batch_size'", "did you mean 'batch_size'?); look in"]),
    ],
)
def test_settings_that_no_run_could_measure_are_refused(home, overrides, words):
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
def test_settings_that_runs_can_measure_are_planned(home, overrides):
    assert make_plan(home, ["accelerator=cpu", *overrides]).manifest.settings


def test_no_shipped_default_is_refused_by_a_run():
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
def test_a_swept_user_key_that_nothing_refers_to_is_refused(home, overrides, key):
    """All of its settings would measure the same, and the report would confirm that with confidence."""
    message = refusal(home, *overrides)
    assert message.startswith(f"{key} has several values, but nothing refers to it"), message
    assert f"${{{key}}}" in message


def test_a_swept_user_group_that_nothing_refers_to_is_refused(home, own_conf):
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
def test_a_user_key_that_something_refers_to_is_an_axis(home, overrides):
    assert make_plan(home, ["accelerator=cpu", *overrides]).manifest.settings


def test_a_swept_global_overlay_is_an_axis(home, own_conf):
    sizes = {"small": 16, "large": 64}
    own_conf({f"setup/{name}.yaml": f"# @package _global_\nbatch_size: {sizes[name]}\n" for name in sizes})
    plan = make_plan(home, ["accelerator=cpu", "+setup=small,large"])
    assert sorted(setting.config.batch_size for setting in plan.settings) == [16, 64]


def test_a_trainer_argument_at_the_top_level_is_redirected_to_trainer(home, own_conf):
    """`+gradient_clip_val=0.5` used to be suggested, which plans a key that nothing reads."""
    advised = "+trainer.gradient_clip_val=0.5"
    message = refusal(home, "gradient_clip_val=0.5")
    assert advised in message
    assert "of your own" not in message
    assert make_plan(home, ["accelerator=cpu", advised]).settings[0].config.trainer["gradient_clip_val"] == 0.5
    assert "+trainer.gradient_clip_val=VALUE" in refusal(home, "+gradient_clip_val=0.5,1")
    assert "controlled by measure.*" in refusal(home, "min_epochs=3")
    assert advised in refusal(home, "trainer.gradient_clip_val=0.5")
    assert "controlled by measure.*" in refusal(home, "trainer.min_epochs=3")
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


def test_a_misspelt_strategy_is_refused_but_an_unknown_one_is_not(home):
    assert "Lightning has no such strategy (did you mean 'ddp'?)" in refusal(home, "trainer.strategy=dpp")
    assert make_plan(home, ["accelerator=cpu", "trainer.strategy=ddp,colossalai"]).settings


EXPERIMENT = "# @package _global_\naccelerator: cpu\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1: 2\n", "unknown key '1'"),
        ("note: " + "[" * 400 + "]" * 400 + "\n", "nested too deeply"),
        ("note: " + "{a: " * 400 + "1" + "}" * 400 + "\n", "nested too deeply"),
    ],
    ids=["a number as key", "lists in lists", "mappings in mappings"],
)
def test_a_malformed_config_is_refused_with_its_cause(home, own_conf, line, words):
    own_conf({"experiment/mine.yaml": EXPERIMENT + line})
    with pytest.raises(InputError, match=words):
        make_plan(home, ["experiment=mine"])


QUICK = ["experiment=quickstart", "accelerator=cpu"]
TREES = ["task=boosting", "model=xgboost", "data=made_rows", "measure=boosting"]
ONE = ["precision=32-true", "devices=1", "batch_size=32"]
SERVER = ["task=inference", "measure.scenario=server", "serving=default"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["task=inferense"], "did you mean 'inference'"),
        (["task=time_to_accuracy"], "measure.target is null: set it"),
        (["task=time_to_accuracy", "measure.target=0.9", "measure.quality_metric=null"], "measure.quality_metric is"),
        (["task=time_to_accuracy", "measure.target=high"], "measure.target='high'"),
        (["task=time_to_accuracy", "measure.target=1", "measure.fake_loader=true"], "never reaches a target"),
        (["task=inference", "measure.scenario=servant"], "did you mean 'server'"),
        (["task=inference", "measure.scenario=server"], "add serving=default, and set serving.latency_ms"),
        (
            [*SERVER, "serving.latency_percentile=1.0"],
            "serving.latency_percentile=1.0: must be more than 0 and less than 1",
        ),
        ([*SERVER, "serving.workers=0"], "serving.workers=0: must be at least 1"),
        ([*SERVER, "+serving.max_batch=8"], "unknown key 'serving.max_batch'"),
        ([*SERVER, "analysis.rate=samples_per_second"], "measure.scenario=server does not measure this rate"),
        (["task=inference", "measure.scenario=single_stream"], "batch_size is 32: set batch_size=1"),
        (["task=inference", "loop=raw"], "task=inference does not train: remove loop"),
        (["task=largest_batch", "measure=largest_batch", "measure.headroom=1.5"], "must be at least 0 and less than 1"),
        (["task=largest_batch", "measure=largest_batch", "measure.max_batch=0"], "must be at least 1"),
        (["task=boosting"], "SmallCNN is a network or a kernel: use model=xgboost"),
        (["model=xgboost"], "XGBoost trains trees, which has no training steps: set task=boosting"),
        ([*TREES, "measure=quick"], "measure.quality_metric=val_accuracy is a different metric: use measure=boosting"),
        ([*TREES, "loop=raw"], "task=boosting delegates training to a library: remove loop"),
        ([*TREES, "analysis.rate=flops_per_second"], "only row_rounds_per_second, samples_per_second"),
        (["data.fold=all", "data.folds=5", "measure.quality_samples=null"], "data.fold=all trains and validates"),
        (["data.fold=all", "data.folds=5", "task=inference"], "leave task at train_throughput"),
        (["analysis.rate=samples_per_secnd"], "did you mean 'samples_per_second'"),
        (
            ["analysis.rate=results_per_hour"],
            "task=train_throughput does not measure this rate, only samples_per_second",
        ),
    ],
)
def test_keys_that_do_not_fit_the_task_are_refused_with_a_remedy(home, overrides, words):
    with pytest.raises(InputError) as refused:
        make_plan(home, [*QUICK, *overrides])
    assert words in str(refused.value)
    assert not (home / "sweeps").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "overrides",
    [
        ["task=time_to_accuracy", "measure.target=0.9"],
        ["task=time_to_accuracy", "measure.target=1", "analysis.rate=samples_per_second"],
        ["task=inference"],
        ["task=inference", "batch_size=1", "measure.scenario=offline,single_stream", "baseline.batch_size=1"],
        ["task=inference", "measure.scenario=multi_stream"],
        [*SERVER, "batch_size=1,32", "serving.max_wait_ms=0.0,1.0", "+baseline.serving.max_wait_ms=0.0"],
        ["task=kernels", "model=kernel_elementwise", "model.operation=add,relu", "analysis.rate=bytes_per_second"],
        ["task=kernels", "model._target_=torch.nn.Identity"],
        ["task=train_throughput,inference"],
    ],
)
def test_keys_that_fit_the_task_are_planned(home, overrides):
    assert make_plan(home, [*QUICK, *overrides]).manifest.settings


KERNELS = ["task=kernels", "model=kernel_copy"]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["task=inference", "optimizer.lr=0.1,0.2"], "optimizer.lr"),
        (["task=inference", "optimizer=sgd,adam"], "optimizer"),
        (["task=inference", "trainer.strategy=auto,ddp"], "trainer.strategy"),
        (["task=inference", "measure.quality_samples=1000,2000"], "measure.quality_samples"),
        ([*KERNELS, "data=digits,wine"], "data"),
        ([*KERNELS, "data.num_workers=0,1"], "data.num_workers"),
        ([*KERNELS, "measure.fake_loader=true,false"], "measure.fake_loader"),
        ([*KERNELS, "measure.probe_steps=5,20"], "measure.probe_steps"),
        (["measure.target=0.8,0.9"], "measure.target"),
        (["measure.scenario=offline,single_stream"], "measure.scenario"),
        (["task=time_to_accuracy", "measure.target=0.9", "measure.quality_samples=8,9"], "measure.quality_samples"),
        (["task=inference", "serving=default", "serving.max_wait_ms=0.0,1.0"], "serving.max_wait_ms"),
        ([*SERVER, "serving.generator=own,loadgen"], "serving.generator"),
        (["serving=default", "serving.latency_ms=5.0,50.0"], "serving.latency_ms"),
        (["task=largest_batch", "batch_size=8,9"], "batch_size"),
        (["measure=largest_batch", "measure.headroom=0.1,0.2"], "measure.headroom"),
        ([*TREES, "batch_size=8,9"], "batch_size"),
        ([*TREES, *ONE[1:], "precision=32-true,64-true"], "precision"),
        ([*TREES, *ONE, "optimizer.lr=0.1,0.2"], "optimizer.lr"),
        ([*TREES, *ONE, "measure.fake_loader=true,false"], "measure.fake_loader"),
        ([*TREES, *ONE, "+data.placement=loader,resident", "+baseline.data.placement=loader"], "data.placement"),
        (["task=train_throughput,inference", "measure.max_samples=1000,2000"], "measure.max_samples"),
    ],
)
def test_a_swept_key_that_the_task_does_not_use_is_refused(home, overrides, key):
    """All values would measure the same, and the report would confirm that with confidence."""
    with pytest.raises(InputError, match=rf"^{key} has several values, but task=\w+.* does not use it"):
        make_plan(home, [*QUICK, *overrides])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "overrides",
    [
        ["task=inference", "optimizer.lr=0.1", "measure.quality_samples=1000"],
        ["task=train_throughput,inference", "optimizer.lr=0.1,0.2"],
        ["task=inference", "data.placement=loader,resident"],
        [*KERNELS, "model.size=100,200", "measure=quick,heavy"],
        [
            "task=inference",
            "optimizer.lr=0.1,0.2",
            "exclude=[{when: {optimizer.lr: 0.2}, because: one is enough}]",
        ],
    ],
)
def test_an_unused_key_is_accepted_if_it_is_not_swept_or_one_of_the_tasks_uses_it(home, overrides):
    assert make_plan(home, [*QUICK, *overrides]).manifest.settings


def test_an_exclude_rule_can_drop_settings_that_do_not_fit(home):
    """Single-stream and offline inference in one sweep."""
    rule = "exclude=[{when: {measure.scenario: single_stream, batch_size: 32}, because: one at a time}]"
    plan = make_plan(
        home, [*QUICK, "task=inference", "batch_size=1,32", "measure.scenario=offline,single_stream", rule]
    )
    assert {(c.axes["batch_size"], c.axes["measure.scenario"]) for c in plan.manifest.settings} == {
        (1, "offline"),
        (1, "single_stream"),
        (32, "offline"),
    }


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["serving.latency_ms=0.0"], "serving.latency_ms=0: must be more than 0"),
        (["num_nodes=2"], "supports one node, not 2: increase devices instead"),
    ],
)
def test_unservable_queries_are_unsupported_with_a_reason(home, overrides, reason):
    lines = {line.split("=")[0]: line for line in [*QUICK, *SERVER, "devices=1", *overrides]}
    settings = make_plan(home, list(lines.values())).manifest.settings
    assert all(reason in setting.unsupported for setting in settings)


def test_serving_without_the_load_generator_is_unsupported_and_says_what_to_install(home, monkeypatch):
    monkeypatch.setattr(
        "accelsweep.features.serving.options.loadgen_install_command", lambda: "pip install accelsweep[serving]"
    )
    settings = make_plan(home, [*QUICK, *SERVER, "devices=1"]).manifest.settings
    assert {setting.unsupported for setting in settings} == {
        "measure.scenario=server needs MLPerf's LoadGen: pip install accelsweep[serving]"
    }


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["model=lightgbm", "devices=2"], "LightGBM trains in one process here, not in 2: use threads"),
        (["model=hist_gradient_boosting", "devices=2"], "scikit-learn trains in one process here"),
        (["precision=bf16-mixed"], "precision=bf16-mixed: task=boosting leaves number formats to the library"),
        (["site=gpu_node", "accelerator=cuda", "model=lightgbm"], "accelerator=cuda: LightGBM supports only cpu"),
    ],
)
def test_trees_that_cannot_be_grown_are_unsupported_with_a_reason(home, overrides, reason):
    lines = {line.split("=")[0]: line for line in [*QUICK, *TREES, *ONE, *overrides]}
    settings = make_plan(home, [*lines.values(), "baseline=null"]).manifest.settings
    assert all(reason in setting.unsupported for setting in settings)


def test_trees_without_their_library_are_unsupported_and_say_what_to_install(home, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = make_plan(home, [*QUICK, *TREES, *ONE]).manifest.settings
    assert {setting.unsupported for setting in settings} == {
        "task=boosting needs XGBoost: pip install 'accelsweep[boosting]'"
    }


def test_the_version_of_the_boosting_library_is_part_of_the_sources(home):
    """Another version trains at another speed, so its records must not be reused."""
    sources = make_plan(home, [*QUICK, *TREES, "model=hist_gradient_boosting", *ONE]).manifest.sources
    assert set(sources) == {"accelsweep.features.boosting", "accelsweep.workloads", "sklearn"}


def test_a_config_without_serving_has_no_such_key(home):
    """Otherwise the key would be part of every setting's name."""
    (setting, *_) = make_plan(home, QUICK).settings
    assert "serving" not in setting.config.raw

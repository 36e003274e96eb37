"""A task whose settings do not fit is refused while nothing has been written, with what to set."""

import pytest

from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan

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
        (["task=time_to_accuracy", "measure.target=1", "measure.fake_loader=true"], "reaches no target"),
        (["task=inference", "measure.scenario=servant"], "did you mean 'server'"),
        (["task=inference", "measure.scenario=server"], "add serving=default, and set serving.latency_ms"),
        (
            [*SERVER, "serving.latency_percentile=1.0"],
            "serving.latency_percentile=1.0: must be more than 0 and less than 1",
        ),
        ([*SERVER, "serving.workers=0"], "serving.workers=0: must be at least 1"),
        ([*SERVER, "+serving.max_batch=8"], "unknown key 'serving.max_batch'"),
        ([*SERVER, "analysis.rate=samples_per_second"], "measure.scenario=server measures no such rate"),
        (["task=inference", "measure.scenario=single_stream"], "batch_size is 32: set batch_size=1"),
        (["task=inference", "loop=raw"], "task=inference does not train: leave loop out"),
        (["task=memory_frontier", "measure=frontier", "measure.headroom=1.5"], "must be at least 0 and less than 1"),
        (["task=memory_frontier", "measure=frontier", "measure.max_batch=0"], "must be at least 1"),
        (["task=boosting"], "SmallCNN is a network or a kernel: take model=xgboost"),
        (["model=xgboost"], "XGBoost grows trees, which has no training step: set task=boosting"),
        ([*TREES, "measure=quick"], "measure.quality_metric=val_accuracy is another quality: take measure=boosting"),
        ([*TREES, "loop=raw"], "task=boosting lets a library train: leave loop out"),
        ([*TREES, "analysis.rate=flops_per_second"], "only row_rounds_per_second, samples_per_second"),
        (["data.fold=all", "data.folds=5", "measure.quality_samples=null"], "data.fold=all trains and validates"),
        (["data.fold=all", "data.folds=5", "task=inference"], "leave task at train_throughput"),
        (["analysis.rate=samples_per_secnd"], "did you mean 'samples_per_second'"),
        (["analysis.rate=results_per_hour"], "task=train_throughput measures no such rate, only samples_per_second"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(home, overrides, words):
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
def test_what_fits_is_planned(home, overrides):
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
        (["task=memory_frontier", "batch_size=8,9"], "batch_size"),
        (["measure=frontier", "measure.headroom=0.1,0.2"], "measure.headroom"),
        ([*TREES, "batch_size=8,9"], "batch_size"),
        ([*TREES, *ONE[1:], "precision=32-true,64-true"], "precision"),
        ([*TREES, *ONE, "optimizer.lr=0.1,0.2"], "optimizer.lr"),
        ([*TREES, *ONE, "measure.fake_loader=true,false"], "measure.fake_loader"),
        ([*TREES, *ONE, "+data.placement=loader,resident", "+baseline.data.placement=loader"], "data.placement"),
        (["task=train_throughput,inference", "measure.max_samples=1000,2000"], "measure.max_samples"),
    ],
)
def test_a_swept_key_that_the_task_does_not_use_is_refused(home, overrides, key):
    """All values would measure the same, and the report would say so with confidence."""
    with pytest.raises(InputError, match=rf"^{key} has several values, and task=\w+.* does not use it"):
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
def test_a_key_that_is_merely_set_or_that_one_of_the_tasks_uses_may_stand(home, overrides):
    assert make_plan(home, [*QUICK, *overrides]).manifest.settings


def test_a_rule_may_drop_the_settings_that_do_not_fit(home):
    """One sample at a time, and many at a time, in one sweep."""
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
        (["serving.latency_ms=0.0"], "serving.latency_ms=0: no answer takes no time"),
        (["num_nodes=2"], "has one queue on one node, not on 2: raise devices instead"),
    ],
)
def test_queries_that_cannot_be_served_are_a_row_with_its_reason(home, overrides, reason):
    lines = {line.split("=")[0]: line for line in [*QUICK, *SERVER, "devices=1", *overrides]}
    settings = make_plan(home, list(lines.values())).manifest.settings
    assert all(reason in setting.unsupported for setting in settings)


def test_without_the_load_generator_serving_is_a_row_that_says_what_to_install(home, monkeypatch):
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
        (["precision=bf16-mixed"], "precision=bf16-mixed: in task=boosting the library chooses number formats"),
        (["site=gpu_node", "accelerator=cuda", "model=lightgbm"], "accelerator=cuda: LightGBM has cpu here"),
    ],
)
def test_trees_that_cannot_be_grown_are_a_row_with_its_reason(home, overrides, reason):
    lines = {line.split("=")[0]: line for line in [*QUICK, *TREES, *ONE, *overrides]}
    settings = make_plan(home, [*lines.values(), "baseline=null"]).manifest.settings
    assert all(reason in setting.unsupported for setting in settings)


def test_without_the_library_trees_are_a_row_that_says_what_to_install(home, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = make_plan(home, [*QUICK, *TREES, *ONE]).manifest.settings
    assert {setting.unsupported for setting in settings} == {
        "task=boosting needs XGBoost: pip install 'accelsweep[boosting]'"
    }


def test_a_setting_of_trees_stands_for_one_version_of_its_library(home):
    """Another version grows them at another pace, and no record of the old one may stand for it."""
    sources = make_plan(home, [*QUICK, *TREES, "model=hist_gradient_boosting", *ONE]).manifest.sources
    assert set(sources) == {"accelsweep.features.boosting", "accelsweep.workloads", "sklearn"}


def test_a_config_that_serves_nothing_has_no_key_for_it_so_that_older_settings_keep_their_names(home):
    """Each key of a config is part of the setting's name, and results of another name are measured again."""
    (setting, *_) = make_plan(home, QUICK).settings
    assert "serving" not in setting.config.raw

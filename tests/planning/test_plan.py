"""The plan as a user gets it: the quickstart, revisions, growth, shrinking, bad input, damage."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
from hydra.core.override_parser.types import Quote, QuotedString
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_fixtures import write_files

from accelsweep.analysis.setting_findings import rerun_command
from accelsweep.config.schema import changed
from accelsweep.devices import kinds
from accelsweep.devices.device_kind import Device
from accelsweep.errors import EXIT_INPUT, DamagedFile, InputError
from accelsweep.executor.attempt import standalone_spec
from accelsweep.features.fleet.planning import Fleet
from accelsweep.installation import shipped_root
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.planning.unsupported import why_unsupported
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest

QUICKSTART = ["experiment=quickstart"]


def files(home):
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def planned(home, *overrides, **options):
    plan = make_plan(home, list(overrides), **options)
    write_plan(home, plan)
    return plan


def test_the_quickstart_is_eight_cpu_settings_in_five_blocks(home):
    plan = make_plan(home, QUICKSTART)
    manifest = plan.manifest
    assert (manifest.sweep, manifest.experiment, manifest.revision) == ("quickstart", "quickstart", 1)
    assert manifest.axes == ("accelerator", "devices", "batch_size", "precision")
    assert len(manifest.settings) == 16
    assert {setting.axes["accelerator"] for setting in manifest.settings if setting.unsupported} == {"cuda"}
    assert [len(block.runs) for block in manifest.blocks] == [9] * 5
    assert manifest.settings[0].name == manifest.baseline
    assert manifest.settings[0].axes == {"accelerator": "cpu", "devices": 1, "batch_size": 32, "precision": "32-true"}
    assert files(home) == {}


def test_the_quickstart_uses_the_gpus_that_a_machine_has(home, monkeypatch):
    seen = (*kinds.inventory(), Device(accelerator="cuda", model="GPU", count=1))
    monkeypatch.setattr(kinds, "inventory", lambda *_: seen)
    manifest = make_plan(home, QUICKSTART).manifest
    reasons = {setting.unsupported for setting in manifest.settings}
    assert sum(setting.unsupported is None for setting in manifest.settings) == 12
    assert any(reason and "2 CUDA devices" in reason for reason in reasons)


def test_every_block_holds_one_repeat_of_each_setting_two_of_the_baseline_and_their_configs(home):
    plan = make_plan(home, QUICKSTART)
    supported = {setting.name for setting in plan.settings if setting.unsupported is None}
    for number, block in enumerate(plan.new_blocks):
        assert {run.setting for run in block.runs} == supported == set(block.configs) == set(block.axes)
        baselines = [run.repeat for run in block.runs if run.setting == plan.manifest.baseline]
        assert sorted(baselines) == [2 * number, 2 * number + 1]
        assert {run.repeat for run in block.runs if run.setting != plan.manifest.baseline} == {number}
        assert {run.seed for run in block.runs} == {1 + number}
    assert all(
        block.configs[setting.name] == setting.config for block in plan.new_blocks for setting in plan.settings[:8]
    )


def test_planning_again_changes_nothing(home):
    first = planned(home, *QUICKSTART)
    before = files(home)
    second = planned(home, *QUICKSTART)
    assert not second.changed
    assert second.manifest == first.manifest
    assert files(home) == before


def test_a_written_plan_is_read_back_unchanged(home):
    plan = planned(home, *QUICKSTART)
    folder = SweepFolder(home, "quickstart")
    assert Manifest.read(folder.manifest) == plan.manifest
    for block in plan.new_blocks:
        assert Block.read(folder.block(block.name)) == block


def test_a_new_batch_size_adds_blocks_of_new_settings_with_a_fresh_baseline(home):
    first = planned(home, *QUICKSTART)
    second = planned(home, *QUICKSTART, "batch_size=32,64,128")
    assert second.manifest.revision == 2
    assert second.manifest.blocks[:5] == first.manifest.blocks
    assert len(second.new_blocks) == 5
    for number, block in enumerate(second.new_blocks):
        baselines = [run for run in block.runs if run.setting == second.manifest.baseline]
        assert sorted(run.repeat for run in baselines) == [10 + 2 * number, 11 + 2 * number]
        assert {block.axes[run.setting]["batch_size"] for run in block.runs if run not in baselines} == {64}
        assert len(block.runs) == 6


def test_the_previous_revision_is_kept(home):
    first = planned(home, *QUICKSTART)
    planned(home, *QUICKSTART, "batch_size=32,64,128")
    folder = SweepFolder(home, "quickstart")
    assert Manifest.read(folder.old_manifest(1)) == first.manifest
    assert Manifest.read(folder.manifest).revision == 2


def test_going_back_to_a_smaller_grid_wants_the_old_blocks_only(home):
    first = planned(home, *QUICKSTART)
    planned(home, *QUICKSTART, "batch_size=32,64,128")
    third = planned(home, *QUICKSTART)
    assert third.new_blocks == ()
    assert third.manifest.blocks == first.manifest.blocks
    assert third.manifest.revision == 3
    fourth = planned(home, *QUICKSTART, "batch_size=32,64,128")
    assert fourth.new_blocks == ()


def test_fewer_repeats_want_the_first_blocks_only(home):
    first = planned(home, *QUICKSTART)
    fewer = planned(home, *QUICKSTART, "repeats=2")
    assert fewer.new_blocks == ()
    assert fewer.manifest.blocks == first.manifest.blocks[:2]


def test_added_repeats_are_whole_blocks_and_stay(home):
    first = planned(home, *QUICKSTART)
    more = planned(home, *QUICKSTART, add_repeats=2)
    assert more.manifest.blocks[:5] == first.manifest.blocks
    assert [len(block.runs) for block in more.new_blocks] == [9, 9]
    assert more.manifest.options.repeats == 7
    again = planned(home, *QUICKSTART)
    assert not again.changed
    assert planned(home, *QUICKSTART, add_repeats=1).manifest.options.repeats == 8
    assert planned(home, *QUICKSTART, "repeats=2").manifest.options.repeats == 2


def test_a_sweep_planned_with_one_baseline_run_keeps_its_blocks_and_grows_by_blocks_with_two(home):
    first = planned(home, *QUICKSTART, "block.baseline_runs=1")
    before = files(home / "sweeps" / "quickstart" / "blocks")
    again = planned(home, *QUICKSTART)
    assert (again.new_blocks, again.manifest.blocks) == ((), first.manifest.blocks)
    assert files(home / "sweeps" / "quickstart" / "blocks") == before
    more = planned(home, *QUICKSTART, add_repeats=1)
    assert more.manifest.blocks[:-1] == first.manifest.blocks
    assert [len(block.runs) for block in more.new_blocks] == [9]


def test_automatic_repeats_begin_with_a_pilot_and_keep_the_decided_number(home):
    auto = (*QUICKSTART, "repeats=auto")
    pilot = planned(home, *auto)
    assert (len(pilot.manifest.blocks), pilot.manifest.options.pilot) == (3, True)
    assert "repeats=auto: these blocks are the pilot" in pilot.notes[-1]
    assert "5 to 20 blocks in total" in pilot.notes[-1]
    decided = planned(home, *auto, total_repeats=6)
    assert decided.manifest.blocks[:3] == pilot.manifest.blocks
    assert (len(decided.manifest.blocks), decided.manifest.options.pilot, decided.notes) == (6, False, ())
    assert not planned(home, *auto).changed
    assert len(planned(home, *QUICKSTART, "repeats=4").manifest.blocks) == 4
    again = planned(home, *auto)  # a number replaces what was decided, and so does auto
    assert (len(again.manifest.blocks), again.new_blocks) == (3, ())


def test_automatic_and_added_repeats_exclude_each_other(home):
    with pytest.raises(InputError, match=r"--add-repeats 2 and repeats=auto .* repeats=N") as caught:
        make_plan(home, [*QUICKSTART, "repeats=auto"], add_repeats=2)
    assert caught.value.exit_code == EXIT_INPUT
    assert files(home) == {}


def test_changed_limits_and_prices_are_a_new_revision_of_the_same_blocks(home):
    first = planned(home, *QUICKSTART)
    before = files(home / "sweeps" / "quickstart" / "blocks")
    second = planned(home, *QUICKSTART, "limits.run_seconds=30", "+prices.devices.cpu=0.5", "analysis.threshold=0.05")
    assert second.manifest.revision == 2
    assert second.new_blocks == ()
    assert [block.runs for block in second.manifest.blocks] == [block.runs for block in first.manifest.blocks]
    assert second.manifest.blocks[0].resources.minutes < first.manifest.blocks[0].resources.minutes
    assert files(home / "sweeps" / "quickstart" / "blocks") == before


def test_a_profile_is_kept_until_another_is_given_and_requires_no_run(home):
    planned(home, *QUICKSTART, profile="mine")
    assert Manifest.read(SweepFolder(home, "quickstart").manifest).profile == "mine"
    again = make_plan(home, QUICKSTART)
    assert not again.changed
    assert again.manifest.profile == "mine"
    local = make_plan(home, QUICKSTART, profile="local")
    assert local.changed
    assert not local.new_blocks
    assert local.manifest.profile is None
    assert local.manifest.profile is None


def test_data_in_another_folder_is_another_setting(home):
    first = planned(home, "data=mnist", "data.root=/old/digits", "batch_size=32,64")
    second = planned(home, "data=mnist", "data.root=/new/digits", "batch_size=32,64")
    assert set(second.manifest.wanted_runs()).isdisjoint(first.manifest.wanted_runs())
    assert planned(home, "data=mnist", "data.root=/old/digits", "batch_size=32,64").new_blocks == ()


def test_two_folders_with_the_same_last_part_are_an_axis(home):
    plan = make_plan(home, ["data=mnist", "data.root=/nfs/x,/nvme/x"])
    assert [setting.axes["data.root"] for setting in plan.settings] == ["/nfs/x", "/nvme/x"]
    assert len({setting.name for setting in plan.settings}) == 2


def test_a_moved_project_keeps_its_runs_and_its_blocks(home, two_cores):
    for place in ("first", "second"):
        (home / place).mkdir()
    old = planned(
        home / "first",
        "data=mnist",
        f"data.root={home}/first/sets/digits",
        f"+env.DATA={home}/first",
        "batch_size=32,64",
    )
    shutil.copytree(home / "first" / "sweeps", home / "second" / "sweeps")
    here = home / "second"
    new = make_plan(here, ["data=mnist", f"data.root={here}/sets/digits", f"+env.DATA={here}", "batch_size=32,64"])
    assert new.new_blocks == ()
    assert new.manifest.wanted_runs() == old.manifest.wanted_runs()
    run = standalone_spec(SweepFolder(here, "sweep"), new.settings[1].name, here, "profile").config
    assert (run.data["root"], run.env["DATA"]) == (f"{here}/sets/digits", str(here))


def test_a_path_in_the_baseline_or_a_rule_matches_as_typed(home, own_conf):
    own_conf({
        "experiment/disks.yaml": "# @package _global_\n"
        f"hydra: {{sweeper: {{params: {{data: mnist, data.root: '{home}/a/x,{home}/b/x,/c/x'}}}}}}\n"
        f"baseline: {{data.root: {home}/b/x}}\n"
        f"exclude: [{{when: {{data.root: {home}/a/x}}, because: slow}}]\n"
    })  # fmt: skip
    plan = make_plan(home, ["experiment=disks"])
    roots = {setting.name: setting.axes["data.root"] for setting in plan.settings}
    assert sorted(roots.values()) == sorted([f"{home}/b/x", "/c/x"])
    assert roots[plan.manifest.baseline] == f"{home}/b/x"


def test_duplicates_in_the_grid_are_planned_once_with_a_note(home):
    plan = make_plan(home, ["batch_size=32,64,32"])
    assert [setting.axes["batch_size"] for setting in plan.settings] == [32, 64]
    assert any("1 of the grid's 3 points" in note for note in plan.notes)


def test_the_name_comes_from_the_option_then_the_config_then_the_experiment(home, own_conf):
    own_conf({"experiment/claims/vgg.yaml": "# @package _global_\nbatch_size: 8\n"})
    assert make_plan(home, ["name=mine"], name="other").manifest.sweep == "other"
    assert make_plan(home, ["name=mine"]).manifest.sweep == "mine"
    assert make_plan(home, ["experiment=claims/vgg"]).manifest.sweep == "claims-vgg"
    assert make_plan(home, []).manifest.sweep == "sweep"


def test_a_name_reserved_by_a_feature_is_refused(home):
    with pytest.raises(InputError, match=r"'claims' is taken: .* Try --name my-claims"):
        make_plan(home, [], name="claims")
    assert make_plan(home, [], name="my-claims").manifest.sweep == "my-claims"


@pytest.mark.parametrize("name", ["../elsewhere", "a b", "$(x)", "a;b", "", "ü", "a\nb", "/tmp/x"])
def test_a_name_that_could_escape_the_folder_is_refused(home, name):
    with pytest.raises(InputError):
        make_plan(home, [f"name={QuotedString(name, Quote.single).with_quotes()}"])
    assert files(home) == {}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["batchsize=8"], ["'batchsize'", "'batch_size'", "base.yaml"]),
        (["model.widht=8"], ["'model.widht'", "'model.width'", "small_cnn.yaml"]),
        (["widht=8"], ["'widht'", "'model.width'"]),
        (["model=smal_cnn"], ["smal_cnn", "'small_cnn'", "conf/model"]),
        (["modle=mlp"], ["modle", "'model'"]),
        (["experiment=quikstart"], ["quikstart", "'quickstart'"]),
        (["optimizer=sgd,adm"], ["optimizer=adm", "adamw"]),
        (["model=null"], ["model=null", "small_cnn"]),
        (["+batch_size=3"], ["batch_size", "already exists"]),
        (["+model=mlp"], ["already exists", "model=mlp"]),
        (["~batchsize"], ["~batchsize", "'batch_size'"]),
        (["precision=bf16-mixt"], ["bf16-mixt", "'bf16-mixed'", "base.yaml"]),
        (["precision=bf16"], ["bf16", "'bf16-mixed'"]),
        (["precision=32"], ["'32-true'"]),
        (["batch_size=many"], ["batch_size", "many", "a number of samples, or auto"]),
        (["batch_size=0"], ["batch_size=0"]),
        (["batch_size=32.0"], ["batch_size=32.0"]),
        (["devices=[0,1]"], ["devices"]),
        (["accelerator=gpu"], ["gpu", "did you mean 'cuda'?"]),
        (["+site.inventory=[{accelerator: gpu, model: x, count: 1}]"], ["did you mean 'cuda'?"]),
        (["launcher=frok"], ["frok", "'fork'"]),
        (["threads=0"], ["threads=0"]),
        (["seed=-1"], ["seed=-1"]),
        (["+env.A={b: c}"], ["env.A"]),
        (["+env={'A=B': c}"], ["env", "A=B"]),
        (["measure.min_seconds=-1"], ["measure.min_seconds", "measure/default.yaml"]),
        (["measure.warmup_steps=1.5"], ["measure.warmup_steps"]),
        (["measure.quality_better=hihger"], ["measure.quality_better"]),
        (["optimizer.lr_scaling=linea"], ["optimizer.lr_scaling='linea'", "did you mean 'linear'?", "sgd.yaml"]),
        (["optimizer.lr_scaling=none,foo"], ["optimizer.lr_scaling='foo'", "'none', 'linear' or 'sqrt'"]),
        (["optimizer.warmup_steps=abc"], ["optimizer.warmup_steps='abc'", "integer", "sgd.yaml"]),
        (["optimizer.warmup_steps=-3"], ["optimizer.warmup_steps=-3", "at least 0"]),
        (["optimizer.base_batch_size=0"], ["optimizer.base_batch_size=0", "at least 1, or null", "sgd.yaml"]),
        (["+model.lr=nan"], ["model.lr", "nan"]),
        (["+model.lr=1,-inf"], ["model.lr", "inf"]),
        (["+model.table={1: x}"], ["model.table.1"]),
        (["~model"], ["'model'", "missing"]),
        (["repeats=0"], ["repeats=0"]),
        (["repeats=atuo"], ["repeats=atuo", "a number of at least 1, or auto", "base.yaml"]),
        (["repeats=auto", "repeats_most=4"], ["repeats_most=4", "at least 5 blocks", "base.yaml"]),
        (["repeats=auto", "repeats_most=many"], ["repeats_most='many'", "integer"]),
        (["analysis.resolution=0"], ["analysis.resolution=0", "more than 0", "base.yaml"]),
        (["limits.run_seconds=-5"], ["limits.run_seconds"]),
        (["limits.run_seconds=inf"], ["limits.run_seconds"]),
        (["limits.run_second=5"], ["limits.run_second", "'limits.run_seconds'"]),
        (["+limits.run_second=5"], ["limits.run_second", "'run_seconds'"]),
        (["analysis.confidence=95"], ["analysis.confidence"]),
        (["block.minutes=1"], ["block.minutes", "limits.run_seconds"]),
        (["block.baseline_runs=0"], ["block.baseline_runs=0", "must be at least 1", "base.yaml"]),
        (["block.baseline_run=1"], ["block.baseline_run", "'block.baseline_runs'"]),
        (["site=gpu_nod"], ["gpu_nod", "'gpu_node'"]),
        (["++baseline={batchsize: 3}"], ["baseline", "'batch_size'"]),
        (["exclude=[{when: {batchsize: 3}, because: x}]"], ["exclude.0", "'batch_size'"]),
        (["exclude=[{when: {batch_size: 32}}]"], ["exclude.0.because"]),
        (["exclude=[{when: {batch_size: 32}, because: ''}]"], ["exclude.0.because"]),
        (["exclude=[{when: {}, because: x}]"], ["exclude.0.when"]),
        (["exclude=[{when: {batch_size: 32}, becuase: x}]"], ["exclude.0.becuase", "'because'"]),
        (["exclude=[{when: {batch_size: 32}, because: x}]"], ["every setting"]),
        (["model._target_=nowhere.Model"], ["model._target_", "'nowhere'"]),
        (["+prices.devices.cuda.usd_per_hours=1"], ["prices.devices.cuda.usd_per_hours"]),
        (["+prices.devices.cuda=-1"], ["prices.devices.cuda"]),
        (["batch_size=[1"], ["batch_size=[1"]),
        (["batch_size"], ["batch_size", "KEY=VALUE"]),
        (["=3"], ["KEY=VALUE"]),
        (["--multirun", "batch_size=1,2"], ["--multirun", "KEY=VALUE"]),
        (["batch_size=[1,2]"], ["batch_size", "without brackets"]),
        (["exclude=3"], ["exclude", "list"]),
        (["exclude=[3]"], ["exclude.0"]),
        (["hydra.sweeper.params={batch_size: '1'}"], ["hydra.sweeper.params"]),
    ],
)
def test_bad_input_is_one_message_that_names_key_remedy_and_file(home, overrides, words):
    with pytest.raises(InputError) as caught:
        make_plan(home, overrides)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert "\n" not in message
    assert caught.value.exit_code == EXIT_INPUT
    assert caught.value.__cause__ is None
    assert files(home) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batchsize: 8\n", ["'batchsize'", "'batch_size'", "mine.yaml"]),
        ("batch_size: many\n", ["batch_size", "many", "mine.yaml"]),
        ("limits: {run_second: 5}\n", ["limits.run_second", "mine.yaml"]),
        ("hydra: {sweeper: {params: {batchsize: '1,2'}}}\n", ["batchsize", "batch_size"]),
        ("batch_size: [\n", ["YAML", "mine.yaml"]),
        ("defaults: [{override /model: smal_cnn}]\n", ["smal_cnn", "'small_cnn'"]),
        ("defaults: [{override /modle: mlp}]\n", ["modle"]),
        ("model: ${oc.env:HOME}\n", ["model", "oc.env"]),
        ("site: {nodes: '${oc.env:HOME}'}\n", ["site.nodes", "oc.env"]),
    ],
)
def test_a_mistake_in_an_experiment_file_names_the_file(home, own_conf, text, words):
    own_conf({"experiment/mine.yaml": "# @package _global_\n" + text})
    with pytest.raises(InputError) as caught:
        make_plan(home, ["experiment=mine"])
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_experiment_without_its_package_line_is_refused(home, own_conf):
    own_conf({"experiment/mine.yaml": "batch_size: 8\n"})
    with pytest.raises(InputError, match=r"mine\.yaml.*@package _global_"):
        make_plan(home, ["experiment=mine"])


def test_the_config_of_another_program_is_recognised(home, own_conf):
    own_conf({"config.yaml": "learning_rate: 0.1\n"})
    with pytest.raises(InputError, match=r"config\.yaml.*rename"):
        make_plan(home, [])


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (["batch_size=range(1,100000)"], {}, "more than 10000 settings .*raise limits.max_settings=10000"),
        (["seed=range(1,102)", "batch_size=range(1,102)"], {}, "more than 10000 settings"),
        (["repeats=100000000"], {}, "100000000 repeats .* more than limits.max_repeats=1000: .* raise the limit"),
        ([], {"add_repeats": 1_000_000}, "1000003 repeats .* limits.max_repeats=1000"),
        (["repeats=auto"], {"total_repeats": 5000}, "5000 repeats .* limits.max_repeats=1000"),
        (["seed=range(0,200)", "repeats=900"], {}, "200 settings with 900 repeats are 180000 runs"),
        (["limits.max_settings=3", "seed=range(0,4)"], {}, "more than 3 settings"),
        ([], {"part": Fleet(nodes=("n1", "n2"), each=600)}, "1200 repeats .* limits.max_repeats=1000"),
    ],
)  # fmt: skip
def test_an_implausibly_large_plan_is_refused_at_once(home, words, options, message, last_line):
    with pytest.raises(InputError, match=message) as caught:
        make_plan(home, words, **options)
    last_line(" ".join([*words, *map(str, options)]), str(caught.value))


def test_the_limits_of_a_plan_can_be_raised(home):
    lifted = ["limits.max_settings=20", "limits.max_repeats=1100", "repeats=1001", "seed=range(0,12)"]
    with pytest.raises(InputError, match=r"limits\.max_settings=10 "):
        make_plan(home, ["limits.max_settings=10", *lifted[1:]])
    assert len(make_plan(home, lifted).manifest.blocks) == 1001
    assert make_plan(home, ["seed=1,2"]).settings[0].name == make_plan(home, ["seed=1,2", *lifted[:2]]).settings[0].name


MNIST = "_target_: torch.nn.Identity\nmine: true\n"


def shadow_notes(plan):
    return [note for note in plan.notes if "so rename one to use the other" in note]


@pytest.mark.parametrize(
    ("folder", "words"),
    [("conf", []), ("configs", ["hydra.searchpath=[file://configs]"]), ("configs", ["hydra.searchpath=[configs]"])],
)
def test_a_user_file_wins_over_the_shipped_one_and_a_note_names_both(home, folder, words):
    write_files(home / folder, {"data/mnist.yaml": MNIST, "model/unused.yaml": "a: 1\n", "data/wine.yaml": MNIST})
    plan = make_plan(home, [*words, "data=mnist"])
    assert plan.settings[0].config.data == {"_target_": "torch.nn.Identity", "mine": True}
    (note,) = shadow_notes(plan)
    assert note.startswith(
        f"{home}/{folder}/data/mnist.yaml is used instead of {shipped_root()}/conf/data/mnist.yaml: "
    )
    assert "mine" not in make_plan(home, [*words, "data=cifar10"]).settings[0].config.data


def test_a_shadowing_file_is_named_in_a_note_and_in_the_errors_that_it_causes(home, own_conf):
    own_conf({"trainer/default.yaml": "strategy: auto\ndeterministic: true\n"})
    plan = make_plan(home, [])
    assert plan.settings[0].config.trainer == {"strategy": "auto", "deterministic": True}
    assert "conf/trainer/default.yaml is used instead of " in shadow_notes(plan)[0]
    own_conf({"trainer/default.yaml": "devices: 2\n"})
    both = rf"trainer\.devices.*{home}/conf/trainer/default\.yaml is used instead of {shipped_root()}/conf/trainer/"
    with pytest.raises(InputError, match=both):
        make_plan(home, [])
    own_conf({"trainer/default.yaml": "default_root_dir: ${paths.output_dir}\n"})
    with pytest.raises(InputError, match=r"trainer\.default_root_dir.*is used instead of"):
        make_plan(home, [])


def test_a_shadowing_file_that_a_user_file_includes_is_named_too(home, own_conf):
    own_conf(
        {"optimizer/mine.yaml": "defaults: [sgd]\nlr: 1.0\n", "optimizer/sgd.yaml": "_target_: torch.optim.Adam\n"}
    )
    plan = make_plan(home, ["optimizer=mine"])
    assert plan.settings[0].config.optimizer == {"_target_": "torch.optim.Adam", "lr": 1.0}
    assert [note.split(" ")[0] for note in shadow_notes(plan)] == [f"{home}/conf/optimizer/sgd.yaml"]


def test_each_shadowing_file_of_a_swept_group_and_of_an_experiment_is_named(home, own_conf):
    name = "# @package _global_\nhydra: {sweeper: {params: {data: 'mnist,wine,digits'}}}\n"
    own_conf({"experiment/quickstart.yaml": name, "data/mnist.yaml": MNIST, "data/wine.yaml": MNIST + "more: 1\n"})
    found = [note.split(" ")[0].removeprefix(f"{home}/conf/") for note in shadow_notes(make_plan(home, QUICKSTART))]
    assert found == ["data/mnist.yaml", "data/wine.yaml", "experiment/quickstart.yaml"]


def test_conf_precedes_the_search_path_and_neither_replaces_the_root_files(home, own_conf):
    own_conf({"data/mnist.yaml": MNIST})
    foreign = {"config.yaml": "learning_rate: 1\n", "data/mnist.yaml": "x: 1\n", "callbacks/theirs.yaml": "y: 2\n"}
    write_files(home / "configs", foreign)
    plan = make_plan(home, ["hydra.searchpath=[file://configs]", "data=mnist", "+callbacks=theirs"])
    assert plan.settings[0].config.data["mine"]
    assert plan.settings[0].config.raw["callbacks"] == {"y": 2}
    assert plan.settings[0].config.batch_size == 32
    ours, conf = shipped_root() / "conf", f"{home}/conf/data/mnist.yaml"
    assert [note.partition(":")[0] for note in shadow_notes(plan)] == [
        f"{ours}/config.yaml is used instead of {home}/configs/config.yaml",
        f"{conf} is used instead of {home}/configs/data/mnist.yaml or {ours}/data/mnist.yaml",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("hydra.searchpath=[file://nowhere]", "there is no folder .*/nowhere"),
        ("hydra.searchpath=configs", "expected a list of folders"),
    ],
)
def test_a_search_path_to_a_missing_folder_is_refused(home, words, message):
    with pytest.raises(InputError, match=message):
        make_plan(home, [words])


def test_user_keys_are_part_of_the_identity(home):
    names = [make_plan(home, [f"+flavour={value}"]).settings[0].name for value in ("a", "b")]
    assert names[0] != names[1]
    assert any("batch_size" in note for note in make_plan(home, ["+batchsize=3"]).notes)


def test_plan_keys_are_no_part_of_the_identity(home):
    steered = ["repeats=5", "limits.run_seconds=9", "name=x", "+prices.devices.cpu=1", "report={}", "block.size=2"]
    steered += ["block.baseline_runs=1", "repeats_most=9", "analysis.resolution=0.2"]
    assert make_plan(home, []).settings[0].name == make_plan(home, steered).settings[0].name


def test_numbers_in_env_become_text(home):
    (setting,) = make_plan(home, ["+env.OMP_NUM_THREADS=2"]).settings
    assert setting.config.env == {"OMP_NUM_THREADS": "2"}


def test_threads_are_set_in_one_place_and_count_from_one(home):
    with pytest.raises(InputError, match=r"threads=1 and env\.OMP_NUM_THREADS=2 set the same number: remove one"):
        make_plan(home, ["+env.OMP_NUM_THREADS=2", "threads=1"])
    with pytest.raises(InputError, match=r"env\.OMP_NUM_THREADS=0: the number of threads must be a whole number"):
        make_plan(home, ["+env.OMP_NUM_THREADS=0"])


def test_arguments_of_compile_are_refused_if_nothing_is_compiled(home):
    with pytest.raises(InputError, match=r"compile_options\.dynamic=true has no effect.* add compile=null,default"):
        make_plan(home, ["compile_options.dynamic=null,true"])
    assert make_plan(home, ["compile_options.dynamic=true", "compile=null,default"]).manifest.settings


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ("gradient_accumulation=2", "trainer.accumulate_grad_batches=4", "trainer.accumulate_grad_batches=4"),
        ("compile=default", "+model.compile=true", "model.compile=true"),
        ("channels_last=true", "+model.channels_last=true", "model.channels_last=true"),
    ],
)
def test_two_keys_for_one_thing_are_refused_with_both_names(home, ours, theirs, message):
    with pytest.raises(InputError, match=f"{ours} and {message} set the same thing: remove one of them"):
        make_plan(home, [ours, theirs])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("compile=fast", r"compile='fast'.*default"),
        ("compile=true", r"compile=True"),
        ("matmul_precision=tf32", r"matmul_precision='tf32'"),
        ("channels_last=3", r"channels_last=3: must be true, false or auto"),
        ("gradient_accumulation=0", r"gradient_accumulation=0"),
        ("loader.num_workers=-1", r"loader.num_workers=-1"),
        ("numa=all", r"numa='all': must be the number of a NUMA node, auto or null"),
        ("activation_checkpointing=3", r"activation_checkpointing=3: must be blocks, the name of a class"),
        ("+loader.workers=2", r"loader.workers.*num_workers"),
        ("+compile_options.dynamik=true", r"compile_options.dynamik.*did you mean 'dynamic'"),
    ],
)
def test_invalid_execution_options_are_refused(home, override, message):
    with pytest.raises(InputError, match=message):
        make_plan(home, [override])


def test_loader_arguments_are_refused_for_data_with_keys_of_its_own(home):
    with pytest.raises(InputError, match=r"loader.num_workers: this data has keys of its own .* data.num_workers"):
        make_plan(home, ["loader.num_workers=0,2"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loader": {"num_workers": 0, "prefetch_factor": 4}}, "loader.prefetch_factor=4 needs workers, but"),
        ({"loader": {"pin_memory": True}}, "loader.pin_memory=true has no effect with accelerator=cpu"),
        ({"loader": {"num_workers": 2, "pin_memory": False}}, None),
    ],
)
def test_loader_arguments_that_cannot_have_an_effect_are_unsupported(home, changes, reason):
    plan = make_plan(home, ["accelerator=cpu"])
    found = why_unsupported(changed(plan.settings[0].config, **changes), plan.manifest.site)
    assert (found or "").startswith(reason or "")
    assert (found is None) is (reason is None)


def test_a_budget_of_tokens_is_refused_where_samples_are_needed(home):
    with pytest.raises(InputError, match="batch_unit=tokens: task=inference needs a number of samples"):
        make_plan(home, ["task=inference", "batch_unit=tokens"])
    with pytest.raises(InputError, match=r"batch_unit=tokens: optimizer\.lr_scaling needs a number of samples"):
        make_plan(home, ["batch_unit=tokens", "optimizer.lr_scaling=linear", "optimizer.base_batch_size=32"])


def test_options_that_a_task_has_no_use_for_are_refused_as_axes(home):
    with pytest.raises(InputError, match=r"gradient_accumulation has several values, but .*inference does not use it"):
        make_plan(home, ["task=inference", "gradient_accumulation=1,2"])


def test_plan_keys_that_differ_between_settings_are_refused(home, own_conf):
    own_conf({f"experiment/{name}.yaml": f"# @package _global_\nrepeats: {n}\n" for name, n in (("a", 3), ("b", 5))})
    with pytest.raises(InputError, match="'repeats' differs"):
        make_plan(home, ["experiment=a,b"])


def test_a_damaged_block_is_reported_set_aside_and_planned_again(home):
    first = planned(home, *QUICKSTART)
    path = SweepFolder(home, "quickstart").block(first.new_blocks[1].name)
    path.write_bytes(path.read_bytes()[:-20])
    plan = make_plan(home, QUICKSTART)
    assert plan.damaged == (path,)
    assert any(str(path) in note for note in plan.notes)
    write_plan(home, plan)
    assert path.with_name(path.name + ".damaged-1").exists()
    assert Block.read(path) == first.new_blocks[1]
    assert not make_plan(home, QUICKSTART).changed


@pytest.mark.parametrize("which", ["manifest.json", "blocks"])
def test_a_plan_of_a_later_version_is_refused_and_left_untouched(home, which):
    planned(home, *QUICKSTART)
    root = SweepFolder(home, "quickstart").root
    path = root / which if which.endswith("json") else next(root.glob("blocks/b*.json"))
    envelope = json.loads(path.read_text())
    body = envelope["body"] | {"weather": "fine"}
    seal = sha256_text(canonical_json(body))
    path.write_text(json.dumps(envelope | {"version": "99.0", "body": body, "sha256": seal}))
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=r"does not know its 'weather'; install accelsweep 99\.0"):
        planned(home, *QUICKSTART)
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before


def test_a_damaged_manifest_is_set_aside_and_its_blocks_are_kept(home):
    first = planned(home, *QUICKSTART)
    planned(home, *QUICKSTART, "repeats=4")
    path = SweepFolder(home, "quickstart").manifest
    path.write_text("{}")
    with pytest.raises(DamagedFile):
        Manifest.read(path)
    plan = planned(home, *QUICKSTART)
    assert plan.new_blocks == ()
    assert plan.manifest.revision == 2
    assert {block.name for block in plan.manifest.blocks} <= {b.name for b in first.new_blocks} | {
        entry.stem for entry in path.parent.joinpath("blocks").glob("b*.json")
    }
    assert path.with_name("manifest.json.damaged-1").read_text() == "{}"


def test_neither_records_nor_foreign_files_are_touched(home):
    planned(home, *QUICKSTART)
    record = SweepFolder(home, "quickstart").record("anything-r0")
    record.parent.mkdir(parents=True)
    record.write_text("mine")
    planned(home, *QUICKSTART, "repeats=4")
    assert record.read_text() == "mine"


hostile = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda t: "${" not in t and t != "???")


@pytest.mark.exhaustive
@pytest.mark.exhaustive
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(hostile, st.sampled_from(["../../x", "$(touch pwned)", "a'b\"c;`x`\n", "\0", "\N{EN DASH}"])),
        min_size=1,
        max_size=3,
    )
)
def test_hostile_values_stay_values(home, values):
    quoted = ",".join(QuotedString(value, Quote.single).with_quotes() for value in values)
    plan = planned(home, "model._target_=torch.nn.Identity", f"model.note={quoted}", name="hostile")
    folder = SweepFolder(home, "hostile")
    manifest = Manifest.read(folder.manifest)
    assert [setting.config.model["note"] for setting in plan.settings] == list(dict.fromkeys(values))
    blocks = [Block.read(folder.block(block.name)) for block in manifest.blocks]
    assert {block.configs[setting].model["note"] for block in blocks for setting in block.configs} >= set(values)
    assert {path.relative_to(home).parts[:2] for path in home.rglob("*") if path.is_file()} == {("sweeps", "hostile")}
    assert all(run.rpartition("-r")[0].isalnum() for run in manifest.wanted_runs())


@pytest.mark.real
def test_every_process_makes_the_same_plan(home, two_cores):
    code = (
        "import json, sys; from pathlib import Path; from accelsweep.planning.plan import make_plan\n"
        "words = ['experiment=quickstart', 'site=gpu_node', 'model._target_=torch.nn.Identity', 'model.note=\"ä\",b']\n"
        "plan = make_plan(Path(sys.argv[1]), words)\n"
        "print(json.dumps(plan.manifest.model_dump(mode='json')))"
    )
    seen = set()
    for seed, zone in (("0", "UTC"), ("4711", "Asia/Tokyo")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "USER": f"user{seed}", "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-c", code, str(home)]
        seen.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    (text,) = seen
    assert json.loads(text)["settings"][0]["axes"]["model.note"] == "ä"


def test_only_a_site_that_asks_for_it_is_probed(home, monkeypatch):
    monkeypatch.setattr(kinds, "inventory", lambda *_: pytest.fail("looked at the machine that plans"))
    manifest = make_plan(home, ["site=gpu_node", "accelerator=auto"]).manifest
    assert manifest.site.count("cuda") == 8
    assert manifest.settings[0].unsupported is None


def test_planning_imports_no_torch(home):
    code = (
        "import sys; from pathlib import Path; from accelsweep.planning.plan import make_plan\n"
        "from accelsweep.planning import cost_estimate\n"
        "make_plan(Path(sys.argv[1]), ['experiment=quickstart'])\n"
        "print([name for name in ('torch', 'lightning', 'mlflow', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code, str(home)], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "[]"


@pytest.mark.heavy
def test_the_rerun_command_of_a_setting_plans_exactly_that_setting(home):
    for overrides in (["experiment=quickstart", "batch_size=32,64"], ["experiment=ladder"]):
        manifest = make_plan(home, overrides).manifest
        for setting in [setting for setting in manifest.settings if setting.unsupported is None][::3]:
            typed = shlex.split(rerun_command(manifest, setting))
            again = make_plan(home, typed[2 : typed.index("--name")], name=typed[-1]).manifest
            assert [one.name for one in again.settings] == [setting.name]

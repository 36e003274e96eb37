"""Which of two configs an override goes to, and how axes become the project's own arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from environments import environment
from projects import copy_project
from shared_fork_server import plan_beside_the_server

from accelsweep.errors import InputError
from accelsweep.planning.plan import Plan, make_plan, write_plan
from accelsweep.records.plan import UNKNOWN_BATCH_SIZE, Quality, TrialFindings

pytestmark = pytest.mark.heavy  # a plan imports the project in a process of its own


BOTH = "[{accelerator: cpu, count: 2, model: x}, {accelerator: cuda, count: 1, model: y}]"


@pytest.fixture(autouse=True)
def _torch_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_beside_the_server(monkeypatch, "API_TOKEN", "SIZE")


@pytest.fixture
def hydra(tmp_path: Path) -> Path:
    return copy_project("hydra_template", tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return copy_project("script", tmp_path)


@pytest.fixture
def plain_script(tmp_path: Path) -> Path:
    return copy_project("plain_script", tmp_path)


def arguments(plan: Plan) -> list[tuple[str, ...]]:
    """The arguments of each setting, in the grid's order."""
    entries = [setting.config.entry for setting in plan.settings]
    return [entry.arguments for entry in entries if entry is not None]


def test_axes_and_the_projects_own_keys_become_hydra_overrides(hydra):
    plan = make_plan(hydra, ["batch_size=64,32", "precision=bf16-mixed", "model.hidden=16,32", "experiment=wide"])
    assert arguments(plan)[:2] == [
        ("model.hidden=16", "experiment=wide", "data.batch_size=64", "++trainer.precision=bf16-mixed"),
        ("model.hidden=32", "experiment=wide", "data.batch_size=64", "++trainer.precision=bf16-mixed"),
    ]
    assert [setting.axes for setting in plan.settings][1] == {"batch_size": 64, "model.hidden": 32}
    first = plan.settings[0].config
    assert (first.accelerator, first.devices, first.precision, first.batch_size) == ("cpu", 1, "bf16-mixed", 64)
    assert first.entry is not None
    assert first.entry.run_arguments == ("hydra.mode=RUN", "hydra.run.dir='{folder}'", "seed={seed}")
    assert first.entry.config is not None
    assert first.entry.config["paths"]["output_dir"] == "{run}"
    assert plan.manifest.entry is not None
    assert (plan.manifest.sweep, plan.manifest.entry.command) == ("train", "python src/train.py")


def test_a_lightning_cli_that_was_found_is_called_with_fit(tmp_path):
    plan = make_plan(copy_project("lightning_cli", tmp_path), ["batch_size=32,64"])
    assert plan.manifest.entry is not None
    assert (plan.manifest.entry.command, plan.manifest.sweep) == ("python train.py fit", "train")
    assert arguments(plan)[0] == ("--data.batch_size=32",)


def test_values_that_are_not_typed_are_those_of_the_projects_config(hydra):
    (setting,) = make_plan(hydra, ["trainer=gpu", "accelerator=cpu", "batch_size=48"]).settings
    assert (setting.config.batch_size, setting.config.precision, setting.config.accelerator) == (48, "32-true", "cpu")
    names = [make_plan(hydra, [f"model.hidden={width}", "batch_size=48"]).settings[0].name for width in (16, 16, 32)]
    assert names[0] == names[1] != names[2]


def test_quality_is_the_metric_of_the_projects_checkpoints_unless_another_is_named(hydra):
    measure = make_plan(hydra, ["batch_size=32,64"]).settings[0].config.measure
    assert (measure.quality_metric, measure.better) == ("val/acc", "max")
    measure = make_plan(hydra, ["batch_size=32,64", "quality=val/loss:min"]).settings[0].config.measure
    assert (measure.quality_metric, measure.better) == ("val/loss", "min")


def test_quality_is_the_metric_that_a_trial_found_if_the_config_names_none(script):
    unknown = make_plan(script, ["batch_size=32,64"])
    assert unknown.settings[0].config.measure.quality_metric is None
    assert any("the trial looks for a ModelCheckpoint" in note for note in unknown.notes)
    trial = TrialFindings(quality=Quality(metric="val_acc", better="max"), left_out=("ModelCheckpoint",))
    known = make_plan(script, ["batch_size=32,64"], trial=trial)
    assert known.settings[0].config.measure.quality_metric == "val_acc"
    assert "left out of the measured Trainer, besides its loggers: ModelCheckpoint" in known.notes
    write_plan(script, known)
    assert make_plan(script, ["batch_size=32,64"]).manifest == known.manifest


def test_values_of_the_environment_are_kept_until_the_sources_change(hydra, monkeypatch):
    config, source = hydra / "configs" / "train.yaml", hydra / "src" / "train.py"
    values = {"size": "${oc.env:SIZE}", "drawn": "${drawn:}", "token": "${oc.env:API_TOKEN}", "at": "${now:%H%M%S%f}"}
    config.write_text(config.read_text() + "".join(f"{key}: {value}\n" for key, value in values.items()))
    draw = "import random\nfrom omegaconf import OmegaConf\n"
    draw += "OmegaConf.register_new_resolver('drawn', lambda: random.random())\n\n\ndef train("
    source.write_text(source.read_text().replace("def train(", draw, 1))
    monkeypatch.setenv("API_TOKEN", "9f8e7d")
    monkeypatch.setenv("SIZE", "5")
    first = make_plan(hydra, ["batch_size=32,64"])
    write_plan(hydra, first)
    monkeypatch.setenv("SIZE", "7")
    again = make_plan(hydra, ["batch_size=32,64"])
    assert again.manifest == first.manifest
    entry = again.settings[0].config.entry
    assert entry is not None
    assert entry.config is not None
    assert entry.kept_values == {"drawn:": entry.config["drawn"], "oc.env:SIZE": "5"}
    assert entry.config["paths"]["root_dir"] == "{project}"
    assert "9f8e7d" not in again.manifest.model_dump_json() + json.dumps(again.settings[0].config.raw)
    assert any("${oc.env:SIZE} is 7 today but was 5 when this sweep was planned" in note for note in again.notes)
    source.write_text(f"{source.read_text()}# edited\n")
    edited = make_plan(hydra, ["batch_size=32,64"]).settings[0].config.entry
    assert edited is not None
    assert edited.kept_values["oc.env:SIZE"] == "7"


def test_devices_in_lightnings_own_words_are_counted_and_those_of_a_job_are_not_known(hydra):
    for devices, count in (('"0,1"', 2), ("[0]", 1), ("${oc.env:SLURM_GPUS_ON_NODE,1}", 1), ("auto", 1)):
        trainer = hydra / "configs" / "trainer" / "default.yaml"
        lines = [line for line in trainer.read_text().splitlines() if not line.startswith("devices:")]
        trainer.write_text("\n".join([*lines, f"devices: {devices}", ""]))
        assert make_plan(hydra, ["batch_size=32"]).settings[0].config.devices == count, devices


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "batchsize=32",
            r"neither accelsweep nor src/train.py has the key 'batchsize' \(did you mean 'batch_size'\?\)",
        ),
        ("model.hiden=3", r"has the key 'model.hiden' \(did you mean 'model.hidden'\?\)"),
        ("seed=1,2", r"both .* have the key 'seed': write sweep.seed=1,2 or project.seed=1,2"),
        ("model=none", r"src/train.py: .*Could not find 'model/none'"),
        ("quality=val/acc:best", "write quality=METRIC"),
        ("batch_size=auto", "is not possible with a script of your own: set batch_size to numbers"),
        ("task=inference", "is not possible with a script of your own: only task=train_throughput is"),
    ],
)
def test_an_override_that_neither_or_both_configs_have_is_refused(hydra, override, message):
    with pytest.raises(InputError, match=message):
        make_plan(hydra, ["batch_size=32,64", override])


def test_prefixes_choose_between_two_configs_with_the_same_key(hydra):
    plan = make_plan(hydra, ["batch_size=32", "sweep.seed=5", "project.seed=7"])
    assert plan.settings[0].config.seed == 5
    assert "seed=7" in arguments(plan)[0]
    assert "passed on to src/train.py: seed=7" in plan.notes


def test_a_key_added_to_a_mapping_of_ours_stays_ours(hydra):
    plan = make_plan(hydra, ["batch_size=32", "+prices.devices.cpu=2.5", "+trainer.gradient_clip_val=0.5"])
    assert plan.manifest.options.prices.devices["cpu"].usd_per_hour == 2.5
    assert arguments(plan) == [("+trainer.gradient_clip_val=0.5", "data.batch_size=32")]


def test_without_an_axis_the_projects_own_values_are_the_baseline(hydra):
    plan = make_plan(hydra, [], minutes=10)
    axes = [setting.axes for setting in plan.settings]
    assert axes[0] == {"batch_size": 128, "precision": "32-true"}
    assert plan.manifest.baseline == plan.settings[0].name
    assert {setting["batch_size"] for setting in axes} == {128, 256, 512}
    assert {setting["precision"] for setting in axes} == {"32-true", "bf16-mixed"}
    assert plan.manifest.overrides[:2] == ("batch_size=128,256,512", "precision=32-true,bf16-mixed")
    short = make_plan(hydra, [], minutes=1)
    assert len(short.settings) < len(plan.settings)
    assert any("left out: batch_size=512" in note for note in short.notes)


def test_a_global_batch_is_divided_among_the_ranks(hydra):
    plan = make_plan(hydra, ["devices=1,2,3", "batch_size=64"], trial=TrialFindings(batch_is="global"))
    sizes = [(setting.config.devices, setting.config.batch_size, setting.unsupported) for setting in plan.settings]
    assert sizes[:2] == [(1, 64, None), (2, 32, None)]
    assert sizes[2][2] is not None


def test_a_lightning_cli_takes_options_and_its_config_decides_the_rest(tmp_path):
    copy_project("lightning_cli", tmp_path)
    entry = "python train.py fit --config config.yaml"
    plan = make_plan(tmp_path, ["precision=32-true,bf16-mixed", "model.hidden=16"], entry=entry)
    assert arguments(plan)[1] == ("--model.hidden=16", "--trainer.precision=bf16-mixed")
    config = plan.settings[0].config
    assert (config.batch_size, config.measure.quality_metric) == (64, "val_acc")
    assert plan.manifest.entry is not None
    assert plan.manifest.entry.words == ["--entry", entry]


def test_a_script_takes_its_options_and_the_trainers_arguments_are_replaced(script):
    plan = make_plan(script, ["batch_size=32,64", "precision=bf16-mixed", "hidden=8"])
    assert arguments(plan) == [("--hidden=8", "--batch-size=32"), ("--hidden=8", "--batch-size=64")]
    entry = plan.settings[0].config.entry
    assert entry is not None
    assert (entry.trainer, entry.config) == ({"precision": "bf16-mixed"}, None)


def test_the_defaults_of_a_scripts_options_are_the_values_that_are_not_typed(script):
    plan = make_plan(script, [])
    assert {setting.config.batch_size for setting in plan.settings} == {32, 64, 128}
    assert make_plan(script, ["hidden=8,16"]).settings[0].config.batch_size == 32
    text = (script / "train.py").read_text()
    (script / "train.py").write_text(text.replace("type=int, default=32", "type=int, default=SIZE"))
    assert make_plan(script, ["hidden=8,16"]).settings[0].unsupported == UNKNOWN_BATCH_SIZE
    tried = make_plan(script, ["hidden=8,16"], trial=TrialFindings(batch_size=48))
    assert (tried.settings[0].unsupported, tried.settings[0].config.batch_size) == (None, 48)
    assert "batch_size=48 was found by the trial" in tried.notes


def test_the_plan_states_the_values_that_come_from_the_project(hydra):
    notes = make_plan(hydra, ["batch_size=32,64"]).notes
    assert "not typed, so the project's own values are used: accelerator=cpu, devices=1" in notes


def test_a_script_without_a_trainer_gets_its_own_options_and_flags(plain_script):
    plan = make_plan(
        plain_script, ["batch_size=16,32", "precision=32-true,bf16-mixed", "devices=1,2", "accelerator=cpu"]
    )
    assert {setting.unsupported for setting in plan.settings} == {None}
    assert {(setting.config.loop, setting.config.entry.package) for setting in plan.settings} == {("script", None)}
    assert arguments(plan)[0] == ("--no-cuda", "--batch-size=16")
    assert ("--no-cuda", "--batch-size=16", "--bf16") in arguments(plan)
    assert {setting.config.entry.run_arguments for setting in plan.settings} == {("--seed={seed}",)}
    assert any(note.startswith("quality is not measured, because the script's validation") for note in plan.notes)
    alone = make_plan(plain_script, [])
    assert {setting.config.batch_size for setting in alone.settings} == {32, 64, 128}
    assert {setting.config.precision for setting in alone.settings} == {"32-true", "bf16-mixed"}


def test_options_that_a_library_declares_are_read_from_what_the_script_prints(plain_script):
    source = plain_script / "train.py"
    source.write_text(
        "import typer\ndef main(batch_size: int = 32, hidden: int = 8, bf16: bool = False):\n"
        "    import torch\n    loss.backward()\n    optimizer.step()\nif __name__ == '__main__':\n    typer.run(main)\n"
    )
    plan = make_plan(plain_script, ["batch_size=16,32", "hidden=8"])
    assert arguments(plan) == [("--hidden=8", "--batch-size=16"), ("--hidden=8", "--batch-size=32")]
    assert make_plan(plain_script, ["hidden=8,16"]).settings[0].config.batch_size == 32
    source.write_text(source.read_text().replace("import typer", "import missing_module, typer"))
    with pytest.raises(InputError, match="does not show the script's options: ModuleNotFoundError"):
        make_plan(plain_script, ["batch_size=16"])


def test_a_placeholder_in_a_scripts_command_is_refused_with_the_option_that_it_stands_in(plain_script):
    source = plain_script / "train.py"
    source.write_text("import sys\nprint(sys.argv)\nloss.backward()\noptimizer.step()\n")
    entry = "python train.py --trainer.batch_size={batch_size}"
    plan = make_plan(plain_script, ["batch_size=16,32"], entry=entry)
    reason = str(plan.settings[0].unsupported)
    assert "because {batch_size} in its command is replaced only with measure.scope=process" in reason
    assert "for example `axes: {batch_size: trainer.batch_size}`" in reason


def test_flags_of_a_script_are_stated_under_values_or_the_setting_is_unsupported(plain_script):
    source = plain_script / "train.py"
    source.write_text(source.read_text().replace("bf16", "half"))
    plan = make_plan(plain_script, ["precision=32-true,bf16-mixed"])
    (reason,) = {setting.unsupported for setting in plan.settings}
    assert reason.endswith("for example `values: {precision: {32-true: '', bf16-mixed: --bf16}}`")
    (plain_script / "accelsweep.yaml").write_text(
        "values: {precision: {32-true: '', bf16-mixed: '--half --hidden 8'}}\n"
    )
    plan = make_plan(plain_script, ["precision=32-true,bf16-mixed,16-mixed"])
    assert arguments(plan)[:2] == [(), ("--half", "--hidden", "8")]
    assert plan.settings[1].config.entry.fixed_arguments(["precision"]) == {}
    assert "cannot tell how train.py is told precision=16-mixed" in str(plan.settings[2].unsupported)


def test_an_axis_may_go_to_an_environment_variable_of_the_script(plain_script):
    (plain_script / "accelsweep.yaml").write_text(
        "axes: {precision: env.MODE}\nvalues: {precision: {32-true: full, bf16-mixed: half}}\n"
    )
    plan = make_plan(plain_script, ["precision=32-true,bf16-mixed"])
    entries = [setting.config.entry for setting in plan.settings]
    assert [entry.variables for entry in entries] == [{"MODE": "full"}, {"MODE": "half"}]
    assert entries[1].targets["precision"] == ["env.MODE"]
    assert entries[1].shell_command == "MODE=half python train.py"
    assert entries[1].fixed_arguments([]) == {"env.MODE": "half"}
    assert entries[1].fixed_arguments(["precision"]) == {}


@pytest.mark.parametrize("place", ["device", "env.DEVICE"])
def test_an_option_or_variable_for_the_device_gets_torchs_name_of_it(plain_script, place):
    (plain_script / "accelsweep.yaml").write_text(f"axes: {{accelerator: {place}}}\n")
    site = ["site.probe=false", f"site.inventory={BOTH}"]
    plan = make_plan(plain_script, ["batch_size=32", "accelerator=cpu,cuda", *site])
    entries = [setting.config.entry for setting in plan.settings]
    told = [{**entry.variables, **dict(word.split("=") for word in entry.arguments)} for entry in entries]
    assert [words["DEVICE" if place == "env.DEVICE" else "--device"] for words in told] == ["cpu", "cuda"]


def test_the_launchers_variables_of_fabric_are_used_where_the_source_builds_one(plain_script):
    source = plain_script / "train.py"
    source.write_text(source.read_text().replace("--bf16", "--other").replace("torch.manual_seed(", "Fabric("))
    plan = make_plan(plain_script, ["precision=bf16-mixed", "devices=2", "accelerator=cpu"])
    (setting,) = plan.settings
    assert setting.config.entry.variables == {
        "LT_CLI_USED": "1",  # as `fabric run` sets it, because the script launches no ranks
        "LT_DEVICES": "2",
        "LT_PRECISION": "bf16-mixed",
    }
    source.write_text(source.read_text() + "\nfabric.launch()\n")
    (setting,) = make_plan(plain_script, ["devices=2"]).settings
    assert setting.config.entry.variables == {"LT_DEVICES": "2"}


def test_an_option_or_variable_that_the_source_does_not_show_can_be_typed(plain_script):
    plan = make_plan(plain_script, ["batch_size=16", "arg.unseen=1,2", "env.MODE=x,y"])
    assert arguments(plan)[::2] == [("--unseen=1", "--batch-size=16"), ("--unseen=1", "--batch-size=16")]
    assert [setting.config.env for setting in plan.settings] == [
        {"MODE": "x"},
        {"MODE": "x"},
        {"MODE": "y"},
        {"MODE": "y"},
    ]
    with pytest.raises(InputError, match=r"to pass it on as --unseen in any case, write arg\.unseen=1"):
        make_plan(plain_script, ["unseen=1"])


def test_the_quality_of_a_script_is_a_metric_or_a_pattern_for_what_it_prints(plain_script):
    (setting,) = make_plan(plain_script, ["batch_size=16", r"quality=accuracy: ([0-9.]+)"]).settings
    assert setting.config.measure.quality_metric == "accuracy"
    assert setting.config.entry.quality_pattern == "accuracy: ([0-9.]+)"
    (setting,) = make_plan(plain_script, ["batch_size=16", r"quality='Accuracy: \d+/\d+ \((\d+)%\)'"]).settings
    assert setting.config.measure.quality_metric == "Accuracy"
    (setting,) = make_plan(plain_script, ["batch_size=16", r"quality='eval_loss': '([0-9.]+):min"]).settings
    assert (setting.config.measure.quality_metric, setting.config.entry.quality_pattern) == (
        "eval_loss",
        "'eval_loss': '([0-9.]+)",
    )
    (setting,) = make_plan(plain_script, ["batch_size=16", "quality=eval_loss:min"]).settings
    measure = setting.config.measure
    assert (measure.quality_metric, measure.quality_better, measure.quality_samples) == ("eval_loss", "min", None)
    (plain_script / "accelsweep.yaml").write_text("quality: {metric: 'loss ([0-9.]+)', better: min}\n")
    plan = make_plan(plain_script, ["batch_size=16"])
    assert plan.settings[0].config.entry.quality_pattern == "loss ([0-9.]+)"
    assert any(note.startswith("quality: the last value of what it prints, 'loss (") for note in plan.notes)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("quality=loss ([0-9", "is not a valid regular expression: unterminated character set"),
        ("quality=(loss) ([0-9.]+)", "needs one group, around the number"),
        ("quality=loss:low", "write quality=METRIC, or quality=METRIC:min"),
    ],
)
def test_a_quality_that_cannot_be_read_is_refused(plain_script, typed, message):
    with pytest.raises(InputError, match=re.escape(message)):
        make_plan(plain_script, ["batch_size=16", typed])


def test_a_pattern_is_refused_for_a_lightning_trainer(script):
    with pytest.raises(InputError, match="quality is a metric that the validation logs, not a pattern"):
        make_plan(script, ["batch_size=32", "quality=loss ([0-9.]+)"])


def test_an_axis_without_a_place_is_unsupported_with_the_line_that_mends_it(script):
    text = (script / "train.py").read_text()
    (script / "train.py").write_text(text.replace('"--batch-size"', '"--samples"').replace("batch_size", "samples"))
    plan = make_plan(script, ["batch_size=32,64"])
    assert "its options are --samples" in str(plan.settings[0].unsupported)
    assert "write it into accelsweep.yaml" in str(plan.settings[0].unsupported)
    (script / "accelsweep.yaml").write_text("entry: python train.py\naxes: {batch_size: samples}\n")
    assert arguments(make_plan(script, ["batch_size=32,64"]))[0] == ("--samples=32",)


def test_words_of_the_projects_own_are_written_into_its_file(script):
    (script / "accelsweep.yaml").write_text(
        "entry: python train.py\naxes: {precision: precision}\nvalues: {precision: {bf16-mixed: bf16}}\n"
    )
    assert arguments(make_plan(script, ["batch_size=32", "precision=bf16-mixed"]))[0] == (
        "--batch-size=32",
        "--precision=bf16",
    )


def test_a_script_that_cannot_be_imported_is_refused_with_its_own_error_and_line(hydra):
    path = hydra / "src" / "train.py"
    path.write_text(path.read_text().replace("import hydra\n", "import hydra\nimport missing_package\n"))
    with pytest.raises(InputError, match=r"No module named 'missing_package' \(.*train.py, line 8\): install it in /"):
        make_plan(hydra, ["batch_size=32"])


def test_a_script_finds_modules_in_the_working_folder_only_if_pythonpath_names_it(hydra, monkeypatch):
    path = hydra / "src" / "train.py"
    path.write_text(path.read_text().replace("import hydra\n", "import hydra\nimport beside_the_sources\n"))
    (hydra / "beside_the_sources.py").touch()
    with pytest.raises(InputError, match="add its folder to PYTHONPATH"):
        make_plan(hydra, ["batch_size=32"])
    monkeypatch.setenv("PYTHONPATH", str(hydra))
    assert make_plan(hydra, ["batch_size=32"]).settings


def test_a_lightning_cli_without_its_subcommand_or_with_a_wrong_key_is_refused_in_its_own_words(tmp_path):
    copy_project("lightning_cli", tmp_path)
    with pytest.raises(InputError, match=r"train.py: it ended with sys.exit\(2\) .*: error: .*subcommand"):
        make_plan(tmp_path, ["batch_size=32"], entry="python train.py")
    with pytest.raises(InputError, match=r"has the key 'model.hiden' \(did you mean 'model.hidden'\?\)$"):
        make_plan(tmp_path, ["model.hiden=8"], entry="python train.py fit --config config.yaml")


SITE = "{name: box, scheduler: slurm, probe: false, nodes: 2, inventory: [{accelerator: cpu, model: x, count: 8}]}"


def test_the_projects_conf_folder_provides_sites_and_nothing_else(script):
    for name, text in {"site/box": SITE, "base": "repeats: 9", "measure/default": "{min_steps: 9}"}.items():
        file = script / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    given = ["site=box", "batch_size=32,64", "devices=1,2", "num_nodes=1,2", "quality=val_acc"]
    plan = make_plan(script, given)
    assert plan.manifest.site.name == "box"
    assert {setting.unsupported for setting in plan.settings} == {None}
    assert plan.settings[0].config.measure.min_steps != 9
    assert plan.manifest.options.repeats != 9
    assert any(note.startswith("batch_size is assumed to apply to each rank") for note in plan.notes)
    (script / "accelsweep.yaml").write_text("batch_is: per_device\n")
    assert not any(note.startswith("batch_size is assumed") for note in make_plan(script, given).notes)


def test_another_environment_may_use_several_nodes(script):
    environment(script / ".venv", None)
    file = script / "conf" / "site" / "box.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(SITE)
    (setting,) = make_plan(script, ["site=box", "batch_size=32", "num_nodes=2", "quality=val_acc"]).settings
    assert setting.unsupported is None


PROCESS = "measure.scope=process"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A folder with a shell script that trains."""
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    return tmp_path


def fillings(plan: Plan) -> list[dict[str, str]]:
    return [setting.config.entry.placeholders for setting in plan.settings if setting.config.entry is not None]


def test_a_command_that_is_no_python_is_refused_unless_its_whole_process_is_timed(command):
    with pytest.raises(InputError, match=r"steps of `\./train\.sh` cannot be watched.*add measure\.scope=process"):
        make_plan(command, ["batch_size=32,64"], entry="./train.sh")
    plan = make_plan(command, [PROCESS, "batch_size=32,64"], entry="./train.sh {batch_size}")
    assert [setting.unsupported for setting in plan.settings] == [None, None]
    assert fillings(plan) == [{"batch_size": "32"}, {"batch_size": "64"}]
    assert plan.settings[1].config.entry is not None
    assert plan.settings[1].config.entry.shell_command == "./train.sh 64"
    assert (plan.manifest.sweep, "torch" in plan.manifest.versions) == ("train", False)


def test_quality_is_refused_for_whole_processes(command):
    with pytest.raises(InputError, match=r"quality=accuracy: measure\.scope=process reads no quality"):
        make_plan(command, [PROCESS, "quality=accuracy"], entry="./train.sh")


def test_accelsweep_yaml_may_name_a_command_and_its_words(command):
    (command / "accelsweep.yaml").write_text(
        "entry: ./train.sh {precision}\naxes: {batch_size: bs}\nvalues: {precision: {32-true: '', bf16-mixed: --amp}}\n"
    )
    plan = make_plan(command, [PROCESS, "batch_size=32", "precision=32-true,bf16-mixed"])
    commands = [setting.config.entry.shell_command for setting in plan.settings if setting.config.entry]
    assert commands == ["./train.sh --bs=32", "./train.sh --amp --bs=32"]


@pytest.mark.parametrize("name", ["precision", "accelerator"])
def test_a_placeholder_that_would_pass_on_our_own_word_is_refused(command, name):
    with pytest.raises(InputError, match=rf"{{{name}}} in the command would become .*values: {{{name}: {{"):
        make_plan(command, [PROCESS, "accelerator=cpu"], entry=f"./train.sh {{{name}}}")


def test_a_mistyped_placeholder_and_one_without_a_value_are_refused(command):
    with pytest.raises(InputError, match=r"\{batchsize\} in the command stands for nothing.*batch_size"):
        make_plan(command, [PROCESS], entry="./train.sh {batchsize}")
    with pytest.raises(InputError, match=r"\{batch_size\} in the command has no value: type batch_size=NUMBER"):
        make_plan(command, [PROCESS], entry="./train.sh {batch_size}")
    plan = make_plan(command, [PROCESS], entry="sh -c 'awk {print} ${batch_size}'")
    assert fillings(plan) == [{}]


def test_other_keys_of_a_command_are_placeholders_or_options_and_a_mistyped_key_is_neither(command):
    plan = make_plan(command, [PROCESS, "hidden=8,16", "arg.layers=2"], entry="./train.sh {hidden}")
    assert (fillings(plan), arguments(plan)) == ([{"hidden": "8"}, {"hidden": "16"}], [("--layers=2",)] * 2)
    assert [setting.axes for setting in plan.settings] == [{"hidden": 8}, {"hidden": 16}]
    with pytest.raises(InputError, match=r"has the key 'hiden'; to pass it on as an option, write arg\.hiden=8"):
        make_plan(command, [PROCESS, "hiden=8"], entry="./train.sh {hidden}")


def test_an_axis_that_a_command_cannot_be_told_is_unsupported(command):
    reasons = [
        make_plan(command, [PROCESS, "accelerator=cpu", axis], entry="./train.sh").settings[0].unsupported
        for axis in ("batch_size=64", "precision=bf16-mixed", "devices=2", "num_nodes=2")
    ]
    assert "the command has no placeholder {batch_size}" in str(reasons[0])
    assert "the command has no placeholder {precision}" in str(reasons[1])
    assert "devices=2 has no effect" in str(reasons[2])
    assert "starts one process, on one node" in str(reasons[3])


def test_a_command_starts_its_own_processes_so_devices_are_an_argument(command):
    site = "site.inventory=[{accelerator: cpu, count: 2, model: x}]"
    overrides = [PROCESS, "accelerator=cpu", "devices=2", "site.probe=false", site]
    (setting,) = make_plan(command, overrides, entry="./train.sh -n {devices}").settings
    assert (setting.unsupported, setting.config.ranks, setting.config.world_size) == (None, 1, 2)


def test_a_python_script_may_be_timed_as_a_whole_and_needs_no_torch(script, tmp_path_factory):
    python = environment(tmp_path_factory.mktemp("without"), None, shares=False)
    plan = make_plan(script, [PROCESS, "batch_size=32,64"], entry=f"{python} train.py")
    assert [setting.unsupported for setting in plan.settings] == [None, None]
    assert arguments(plan)[0] == ("--batch-size=32",)
    assert plan.settings[0].config.entry is not None
    assert plan.settings[0].config.entry.package is None


def test_whole_processes_are_not_compared_with_steps_nor_without_a_command(script, tmp_path):
    with pytest.raises(InputError, match="steps and whole processes have no rate in common"):
        make_plan(script, ["measure.scope=steps,process", "batch_size=32"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="name it with --entry"):
        make_plan(tmp_path / "empty", ["experiment=quickstart", PROCESS])

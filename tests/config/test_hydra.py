"""Hydra composes and enumerates as `--multirun` does; its own keys have their effect, are refused, or get a note."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from accelsweep.cli.typer_app import OPTIONS, refuse_options
from accelsweep.config.grid import expand
from accelsweep.config.hydra import CONFIG_NAME, Composer
from accelsweep.errors import InputError
from accelsweep.installation import config_folders
from accelsweep.planning.plan import make_plan
from accelsweep.planning.user_class_overrides import composed_yaml

SWEEPS = {
    "nothing swept": [],
    "one value": ["batch_size=64"],
    "lists": ["batch_size=32,64", "seed=1,2"],
    "choice": ["batch_size=choice(32,64)"],
    "choice of one": ["batch_size=choice(32)"],
    "range": ["batch_size=range(8,32,8)"],
    "range of floats": ["model.rate=range(0.2,0.4,0.1)"],
    "range downwards": ["seed=range(4,0,-2)"],
    "glob over a group": ["model=glob(*)"],
    "glob with exclusion": ["model=glob(*,exclude=b*)"],
    "quoted commas": ["note='a,b','c'"],
    "quoted comma alone": ['note="a,b"'],
    "spaces and quotes": [r"note='it\'s',a b"],
    "lists as values": ["pair=[1,2],[3,4]"],
    "dicts as values": ["+extra={a:1},{a:2}", "+extra.b=3"],
    "null and booleans": ["trainer.max_time=null,true,false"],
    "numbers are normalised": ["model.rate=1e-3,.5,1_000"],
    "casts": ["note=str(1),2", "seed=int(3.5)"],
    "sorted": ["seed=sort(2,1)"],
    "tagged": ["seed=tag(mine,choice(1,2))"],
    "a group": ["model=small,big"],
    "a group and a key of it": ["model=small,big", "model.width=1,2"],
    "a key before its group": ["model.width=1,2", "model=small,big"],
    "two groups": ["model=big,small", "optimizer=sgd,adam"],
    "added key": ["+model.extra=1,2"],
    "added and then changed": ["+fresh=1", "fresh=2,3"],
    "forced key": ["++model.width=1,2", "++model.fresh=3"],
    "forced after plain": ["model.width=1,2", "++model={width: 3}"],
    "deleted key": ["~note", "sentence=short", "batch_size=1,2"],
    "deleted group": ["~optimizer", "batch_size=1,2"],
    "deleted key with value": ["~trainer.strategy=auto"],
    "duplicates in a list": ["batch_size=32,32,64"],
    "a later override wins at the first place": ["batch_size=1,2", "seed=5,6", "batch_size=7"],
    "a later sweep wins": ["batch_size=1", "seed=5", "batch_size=7,8"],
    "empty text": ["note='',a", "sentence="],
    "interpolation as value": ["batch_size=${seed},7"],
    "interpolation of a whole node": ["+twin=${model}", "model.width=1,2"],
    "interpolation inside an interpolation": ["+key=width", "+value='${model.${key}}'", "model.width=1,2"],
    "relative interpolation": ["model=big", "seed=1,2"],
    "an interpolated leaf is replaced": ["model.size=5,6", "batch_size=1,2"],
    "parameters of an experiment": ["experiment=both"],
    "the command line over an experiment": ["experiment=both", "batch_size=64", "optimizer=adam"],
    "additions in an experiment": ["experiment=added", "seed=9"],
    "parameters on the command line": [
        "experiment=both",
        "hydra.sweeper.params.batch_size='1,2'",
        "optimizer=adam",
        "seed=5",
    ],
    "another package": ["+optimizer@second=sgd,adam"],
    "a mapping becomes a value": ["trainer=null,{strategy: ddp}", "seed=1,2"],
    "a key that only one of the groups has": ["model=small", "model.inner=3,4"],
    "list element": ["pair.0=7,8"],
    "text that looks like code": ["note='$(rm -rf /);`x`'", "batch_size=1,2"],
}


def hydra_multirun(folder: Path, overrides: list[str], output: Path) -> list[dict]:
    """Run the sweep with Hydra's own sweeper and launcher, and return each job's resolved config."""
    search_path = ConfigSearchPathImpl()
    search_path.append("hydra", "pkg://hydra.conf")
    search_path.append("main", f"file://{folder}")
    search_path.append("schema", "structured://")
    configs = []
    hydra = Hydra.create_main_hydra2("parity", search_path)
    try:
        where = [f"hydra.sweep.dir={output}", "hydra.output_subdir=null", "hydra.job_logging.root=null"]
        hydra.multirun("config", lambda cfg: configs.append(plain(cfg)), [*where, *overrides], False)
    finally:
        GlobalHydra.instance().clear()
    return configs


def plain(config) -> dict:
    config = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    return OmegaConf.to_container(config, resolve=True)


def our_configs(composer: Composer, overrides: list[str]) -> list[dict]:
    grid = composer.grid(composer.master(overrides))
    return [{**point.config, **point.plan_config} for point in expand(composer, grid, "cpu")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("overrides", SWEEPS.values(), ids=SWEEPS.keys())
def test_the_grid_is_what_multirun_enumerates(conf, composer, tmp_path, monkeypatch, overrides):
    """Hydra's validation, which composes each job once more, is turned off for speed."""
    monkeypatch.setattr(Sweeper, "validate_batch_is_legal", lambda sweeper, batch: None)
    assert our_configs(composer, overrides) == hydra_multirun(conf, overrides, tmp_path)


@pytest.mark.real
def test_the_grid_is_what_a_decorated_program_is_called_with(conf, composer, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""\
import json, hydra
from omegaconf import OmegaConf

@hydra.main(config_path={str(conf)!r}, config_name="config", version_base="1.3")
def main(config):
    with open({str(tmp_path / "seen")!r}, "a") as file:
        file.write(json.dumps(OmegaConf.to_container(config, resolve=True)) + "\\n")

main()
""")
    overrides = [
        "experiment=both",
        "model=glob(*,exclude=o*)",
        "seed=range(1,2)",
        "+extra='a,b',c",
        "~trainer.strategy",
    ]
    subprocess.run([sys.executable, program, "--multirun", *overrides], cwd=tmp_path, check=True, capture_output=True)
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert our_configs(composer, overrides) == seen


def test_swept_indices_name_the_overrides_with_several_values(composer):
    grid = composer.grid(composer.master(["seed=5", "batch_size=1,2", "model=choice(big)", "note=x"]))
    assert [composer.parse(grid.jobs[0][index]).key_or_group for index in grid.swept] == ["batch_size", "model"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["batch_size=interval(1,3)"], ["interval()", "range()"]),
        (["batch_size=shuffle(1,2,3)"], ["shuffle()"]),
        (["pair=shuffle([1,2,3])"], ["shuffle()"]),
        (["batch_size=choice(1,2)", "hydra/sweeper=optuna"], ["hydra/sweeper=optuna"]),
        (["hydra.sweeper._target_=mine.Sweeper"], ["mine.Sweeper", "every setting must be known"]),
        (["hydra.job.num=1,2"], ["hydra.job.num=1,2", "not supported"]),
        (["batch_size=range(1,5,0)"], ["batch_size=range(1,5,0)"]),
        (["batch_size=range(5,1)"], ["batch_size", "an empty list"]),
        (["seed=range(0,1000000)", "batch_size=range(0,1000)"], ["limits.max_settings=10000"]),
        (["seed=range(0,400)", "batch_size=range(0,400)"], ["limits.max_settings=10000"]),
    ],
)
def test_sweeps_that_cannot_be_enumerated_reproducibly_are_refused(composer, overrides, words):
    with pytest.raises(InputError) as caught:
        composer.grid(composer.master(overrides))
    for word in words:
        assert word in str(caught.value)


def test_cfg_job_prints_what_hydra_composes(home):
    text = composed_yaml(home, ["batch_size=64", "model=mlp"])
    assert OmegaConf.create(text) == OmegaConf.create(
        plain(Composer(config_folders(home)).compose(["batch_size=64", "model=mlp"]))
    )
    assert "batch_size: 64" in text
    assert "hydra" not in text


def test_cfg_job_refuses_a_sweep_and_names_the_key(home):
    with pytest.raises(InputError, match="batch_size"):
        composed_yaml(home, ["batch_size=32,64"])


@pytest.mark.parametrize("sign", ["", "+", "++"])
@pytest.mark.parametrize(
    ("override", "value"),
    [("slurm.max_jobs=3", 3), ("slurm.qos=gold", "gold"), ("slurm.mem_mb=4000", 4000), ("slurm.driver.minutes=30", 30)],
)
def test_a_job_option_is_set_with_or_without_a_plus(home, sign, override, value):
    """So an option printed in a message can be typed as it is, with any site file."""
    key = override.partition("=")[0].split(".")
    for site in ("gpu_node", "slurm_example"):
        composed = Composer(config_folders(home)).master([f"site={site}", f"{sign}site.{override}"]).site
        for part in key:
            composed = composed[part]
        assert composed == value


@pytest.mark.parametrize("sign", ["", "+"])
@pytest.mark.parametrize("experiment", ["quickstart", "ladder"])
def test_a_baseline_key_is_set_with_or_without_a_plus(home, sign, experiment):
    overrides = [f"experiment={experiment}", f"{sign}baseline.accelerator=cpu:h100"]
    assert Composer(config_folders(home)).master(overrides).baseline.accelerator == "cpu:h100"


def test_an_unknown_job_option_is_refused_with_the_nearest_key(home):
    with pytest.raises(InputError, match="max_jobs"):
        Composer(config_folders(home)).master(["site=slurm_example", "site.slurm.max_job=3"])


def test_user_files_precede_shipped_ones(home, own_conf):
    own_conf({"model/small_cnn.yaml": "_target_: mine.Net\nwidth: 7\n", "model/mine.yaml": "_target_: mine.Net\n"})
    composer = Composer(config_folders(home))
    assert composer.compose([]).model.width == 7
    assert composer.compose(["model=mine"]).model == {"_target_": "mine.Net"}
    assert composer.compose(["model=mlp"]).model.depth == 2


def test_a_checkout_is_its_own_working_directory(monkeypatch):
    from accelsweep.installation import shipped_root

    assert config_folders(shipped_root()) == (shipped_root() / "conf",)


ONE_AFTER_ANOTHER = (
    ["batch_size=64", "model.width=8", "+model.extra=1", "pair.0=7"],
    [],
    ["model=big", "model.inner.depth=9", "~note", "sentence=short"],
    ["experiment=both", "model.width=3"],
    ["model=big"],
    ["+optimizer@second=adam", "second.lr=2"],
    ["+optimizer@second=adam"],
    ["~optimizer"],
    [],
)


def by_hydra(composer: Composer, lines: list[str], mode: RunMode) -> DictConfig:
    loader = ConfigLoaderImpl(composer.loader.config_search_path)
    return loader.load_configuration(CONFIG_NAME, lines, run_mode=mode, from_shell=False)


@pytest.mark.parametrize("mode", [RunMode.RUN, RunMode.MULTIRUN])
def test_cached_compositions_are_those_of_a_fresh_hydra(conf: Path, composer: Composer, mode: RunMode) -> None:
    for lines in ONE_AFTER_ANOTHER:
        ours, theirs = composer._load(lines, mode), by_hydra(composer, lines, mode)
        assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs)
        assert list(ours.hydra.overrides.task) == lines


def test_a_failed_composition_leaves_no_trace(composer: Composer) -> None:
    for wrong in (["model.nonsense=1"], ["model=nonsense"], ["~nonsense"]):
        with pytest.raises(InputError):
            composer.compose(wrong)
    assert OmegaConf.to_yaml(composer.compose([])) == OmegaConf.to_yaml(by_hydra(composer, [], RunMode.RUN))


def test_a_searchpath_override_applies_to_its_own_compositions_only(composer: Composer, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "theirs.yaml").write_text("_target_: theirs.Net\n")
    there = f"hydra.searchpath=['file://{tmp_path}']"
    assert composer.compose([there, "model=theirs"]).model == {"_target_": "theirs.Net"}
    with pytest.raises(InputError, match="theirs"):
        composer.compose(["model=theirs"])
    assert composer.compose([there, "model=theirs"]).model == {"_target_": "theirs.Net"}


def test_an_edited_file_is_read_again_by_the_next_composer(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    assert Composer([tmp_path]).compose([]).a == 1
    (tmp_path / "config.yaml").write_text("a: 2\n")
    assert Composer([tmp_path]).compose([]).a == 2


def notes(home, *overrides):
    return make_plan(home, ["accelerator=cpu", *overrides]).notes


@pytest.mark.parametrize(
    "key", ["hydra.run.dir=/x", "hydra.sweep.dir=/x", "hydra.job.chdir=true", "hydra.verbose=true"]
)
def test_hydra_keys_without_effect_get_a_note(key, tmp_path):
    assert any(note.startswith(f"{key.partition('=')[0]} has no effect here") for note in notes(tmp_path, key))


def test_the_note_on_an_output_folder_says_where_results_lie(tmp_path):
    assert "hydra.sweep.dir has no effect here: results are written to sweeps/NAME; set the name with --name" in notes(
        tmp_path, "hydra.sweep.dir=/x"
    )


def test_env_set_is_refused_in_favour_of_env(tmp_path):
    with pytest.raises(InputError, match=r"hydra.job.env_set has no effect here.*write \+env.OMP_NUM_THREADS=VALUE"):
        notes(tmp_path, "+hydra.job.env_set.OMP_NUM_THREADS=1")
    assert notes(tmp_path, "+env.OMP_NUM_THREADS=1") is not None


def test_env_set_in_a_user_file_is_refused_too(tmp_path):
    own = tmp_path / "conf" / "experiment"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\nhydra:\n  job:\n    env_set:\n      FOO: bar\n")
    with pytest.raises(InputError, match=r"write \+env.FOO=VALUE"):
        notes(tmp_path, "experiment=mine")


@pytest.mark.parametrize("key", ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"])
def test_a_launcher_is_refused_in_favour_of_a_profile(key, tmp_path):
    with pytest.raises(InputError, match=r"Snakemake starts the runs. Choose where with --profile"):
        notes(tmp_path, key)


def test_a_space_after_a_comma_is_explained(tmp_path):
    with pytest.raises(InputError, match=r"'batch_size=32,': a space ends the value: .* batch_size=32,64"):
        notes(tmp_path, "batch_size=32,", "64")


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_each_hydra_option_is_refused_with_one_sentence(option):
    with pytest.raises(InputError) as caught:
        refuse_options(["accelerator=cpu", option, "job"])
    assert str(caught.value) == f"{option} is one of Hydra's options: {OPTIONS[option]}"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_hydra_options_are_refused_on_the_command_line(command, tmp_path):
    asked = [sys.executable, "-m", "accelsweep", command, "accelerator=cpu", "--multirun"]
    answered = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answered.returncode == 2
    assert answered.stderr.startswith(
        "accelsweep: wrong input: --multirun is one of Hydra's options: not needed for a sweep"
    )


@pytest.fixture
def experiment(tmp_path):
    """Write `conf/experiment/mine.yaml`."""
    own = tmp_path / "conf" / "experiment"
    own.mkdir(parents=True)
    return lambda lines: (own / "mine.yaml").write_text("\n".join(["# @package _global_", *lines]))


def test_exploding_aliases_are_refused_before_they_are_expanded(tmp_path, experiment):
    tens = (f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]" for number in range(1, 12))
    experiment(["a0: &a0 [x, x]", *tens])
    with pytest.raises(InputError, match=r"mine.yaml: its YAML aliases expand to more than 1000000 values"):
        notes(tmp_path)


def test_exploding_interpolations_are_refused_before_they_are_resolved(tmp_path):
    tens = (f"+a{number}='{10 * ('${a' + str(number - 1) + '}')}'" for number in range(1, 12))
    with pytest.raises(InputError, match=r"'a\d+' expands to more than 1000000 values: its interpolations multiply"):
        notes(tmp_path, "+a0=xxxxxxxxxx", *tens)


def test_moderate_aliases_and_interpolations_are_accepted(tmp_path, experiment):
    experiment(["env: {A: &one '1', B: *one, C: '${.A}'}"])
    plan = make_plan(tmp_path, ["accelerator=cpu", "experiment=mine", "+extra=${batch_size}"])
    assert plan.settings[0].config.env == {"A": "1", "B": "1", "C": "1"}

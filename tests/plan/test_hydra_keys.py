"""What Hydra's users try has its effect, is refused, or is said to have none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from accelsweep.cli.typer_app import OPTIONS, refuse_options
from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan


def notes(home, *overrides):
    return make_plan(home, ["accelerator=cpu", *overrides]).notes


@pytest.mark.parametrize(
    "key", ["hydra.run.dir=/x", "hydra.sweep.dir=/x", "hydra.job.chdir=true", "hydra.verbose=true"]
)
def test_a_key_of_hydras_that_changes_nothing_is_said_to(key, tmp_path):
    assert any(note.startswith(f"{key.partition('=')[0]} has no effect here") for note in notes(tmp_path, key))


def test_where_results_lie_is_said_with_the_key_that_would_have_moved_them(tmp_path):
    assert "hydra.sweep.dir has no effect here: results lie in sweeps/NAME, and --name gives the name" in notes(
        tmp_path, "hydra.sweep.dir=/x"
    )


def test_variables_that_would_reach_no_run_are_refused_with_the_key_that_every_run_gets(tmp_path):
    with pytest.raises(InputError, match=r"hydra.job.env_set has no effect here.*write \+env.OMP_NUM_THREADS=VALUE"):
        notes(tmp_path, "+hydra.job.env_set.OMP_NUM_THREADS=1")
    assert notes(tmp_path, "+env.OMP_NUM_THREADS=1") is not None


def test_variables_in_a_file_of_the_users_are_refused_too(tmp_path):
    own = tmp_path / "conf" / "experiment"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\nhydra:\n  job:\n    env_set:\n      FOO: bar\n")
    with pytest.raises(InputError, match=r"write \+env.FOO=VALUE"):
        notes(tmp_path, "experiment=mine")


@pytest.mark.parametrize("key", ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"])
def test_a_launcher_is_refused_with_what_starts_the_runs(key, tmp_path):
    with pytest.raises(InputError, match=r"Snakemake starts the runs. Choose where with --profile"):
        notes(tmp_path, key)


def test_a_space_after_a_comma_is_told_as_what_it_is(tmp_path):
    with pytest.raises(InputError, match=r"'batch_size=32,': a space ends the value: .*, batch_size=32,64"):
        notes(tmp_path, "batch_size=32,", "64")


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_each_of_hydras_options_gets_one_sentence(option):
    with pytest.raises(InputError) as told:
        refuse_options(["accelerator=cpu", option, "job"])
    assert str(told.value) == f"{option} is one of Hydra's options: {OPTIONS[option]}"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_the_sentence_is_reached_from_the_command_line(command, tmp_path):
    asked = [sys.executable, "-m", "accelsweep", command, "accelerator=cpu", "--multirun"]
    answered = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answered.returncode == 2
    assert answered.stderr.startswith("accelsweep: wrong input: --multirun is one of Hydra's options: not needed for a")


@pytest.fixture
def experiment(tmp_path):
    """Write `conf/experiment/mine.yaml`."""
    own = tmp_path / "conf" / "experiment"
    own.mkdir(parents=True)
    return lambda lines: (own / "mine.yaml").write_text("\n".join(["# @package _global_", *lines]))


def test_aliases_that_multiply_are_refused_before_anybody_follows_them(tmp_path, experiment):
    tens = (f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]" for number in range(1, 12))
    experiment(["a0: &a0 [x, x]", *tens])
    with pytest.raises(InputError, match=r"mine.yaml: its YAML aliases stand for more than 1000000 values"):
        notes(tmp_path)


def test_interpolations_that_multiply_are_refused_before_anybody_follows_them(tmp_path):
    tens = (f"+a{number}='{10 * ('${a' + str(number - 1) + '}')}'" for number in range(1, 12))
    with pytest.raises(InputError, match=r"'a\d+' stands for more than 1000000 values: its interpolations multiply"):
        notes(tmp_path, "+a0=xxxxxxxxxx", *tens)


def test_aliases_and_interpolations_in_measure_stand(tmp_path, experiment):
    experiment(["env: {A: &one '1', B: *one, C: '${.A}'}"])
    plan = make_plan(tmp_path, ["accelerator=cpu", "experiment=mine", "+extra=${batch_size}"])
    assert plan.settings[0].config.env == {"A": "1", "B": "1", "C": "1"}

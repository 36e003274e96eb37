"""What the Snakefile is told of a sweep, and how it is named on Snakemake's command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.api import SnakemakeApi
from snakemake.cli import parse_config
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import ConfigSettings, ResourceSettings

from accelsweep.config.site import Site
from accelsweep.driver.snakefile_functions import (
    GPUS_HELD,
    PYTHON_VARIABLE,
    SWEEP_VARIABLE,
    Sweep,
    limits,
    sweep_of_config,
    taken,
)
from accelsweep.driver.sweep_lock import held
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers.protocol import Resources

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """What a main Snakemake sets for its jobs is another's before, and gone after."""
    monkeypatch.setenv(SWEEP_VARIABLE, "another")
    monkeypatch.setenv(PYTHON_VARIABLE, "another")


@pytest.mark.parametrize("name", ["1e3", "007", "true", "2026.1", "plain"])
def test_a_name_that_looks_like_a_number_stays_a_name(name, tmp_path, monkeypatch):
    write_plan(tmp_path, make_plan(tmp_path, ["experiment=quickstart"], name=name))
    monkeypatch.chdir(tmp_path)
    sweep = sweep_of_config(parse_config([f"sweep=sweeps/{name}"]), plan_if_asked=False)
    assert sweep.root == f"sweeps/{name}"
    assert sweep.report == f"reports/{name}/index.html"


def test_an_unknown_sweep_is_told_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="no sweep 'nothing'"):
        sweep_of_config({"sweep": "nothing"}, plan_if_asked=True)


def test_snakemake_without_a_sweep_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="--config experiment=NAME"):
        sweep_of_config({}, plan_if_asked=True)


def test_a_time_budget_that_was_spent_does_not_stop_a_later_snakemake(tmp_path, monkeypatch):
    folder = write_plan(tmp_path, make_plan(tmp_path, ["experiment=quickstart"]))
    monkeypatch.chdir(tmp_path)
    folder.stop.touch()
    with held(folder):
        sweep_of_config({"sweep": folder.name}, plan_if_asked=True)
        assert folder.stop.exists(), "it is for its head to say when it ends"
    sweep_of_config({"sweep": folder.name}, plan_if_asked=False)
    assert folder.stop.exists(), "a job is not the one who began"
    sweep_of_config({"sweep": folder.name}, plan_if_asked=True)
    assert not folder.stop.exists()


OTHERWISE = """\
# @package _global_
name: otherwise
accelerator: cpu
"""


JOB = """
import sys
from snakemake.cli import parse_config
from accelsweep.driver.sweep_lock import held
from accelsweep.driver.snakefile_functions import sweep_of_config
print(sweep_of_config(parse_config(sys.argv[1:]), plan_if_asked=False).root)
"""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["experiment=claims/mine"], "claims-mine"),
        (["experiment=otherwise"], "otherwise"),
        (["experiment=otherwise", "overrides=name=x batch_size=8,16"], "x"),
        (["experiment=otherwise", "name=y"], "y"),
    ],
)
def test_a_job_finds_the_sweep_that_the_main_process_planned(given, name, tmp_path, monkeypatch):
    for experiment in ("otherwise", "claims/mine"):
        path = tmp_path / "conf" / "experiment" / f"{experiment}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(OTHERWISE.replace("name: otherwise\n", "" if "/" in experiment else "name: otherwise\n"))
    monkeypatch.chdir(tmp_path)
    assert sweep_of_config(parse_config(given), plan_if_asked=True).root == f"sweeps/{name}"
    (tmp_path / "conf" / "experiment" / "otherwise.yaml").write_text("name: edited")
    assert sweep_of_config(parse_config(given), plan_if_asked=False).root == f"sweeps/{name}"


def test_a_job_is_another_process_and_finds_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["experiment=quickstart", "overrides=name=x batch_size=8,16"]
    sweep_of_config(parse_config(given), plan_if_asked=True)
    said = subprocess.run([sys.executable, "-c", JOB, *given], capture_output=True, text=True, check=False)
    assert said.stdout == "sweeps/x\n", said.stderr


def test_with_snakemake_alone_automatic_repeats_end_with_the_pilot_and_it_says_how_to_go_on(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    sweep = sweep_of_config(parse_config(["experiment=quickstart", "overrides=repeats=auto"]), plan_if_asked=True)
    assert len(sweep.done_files) == len(sweep.manifest.blocks) == 3
    assert "Then go on with: accelsweep run experiment=quickstart repeats=auto" in capsys.readouterr().err


def test_the_plan_of_a_sweep_that_a_head_drives_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with held(SweepFolder(tmp_path, "quickstart")):
        with pytest.raises(WorkflowError, match="sweep 'quickstart' is already being run by process"):
            sweep_of_config({"experiment": "quickstart"}, plan_if_asked=True)
        assert not SweepFolder(tmp_path, "quickstart").manifest.exists()
    assert sweep_of_config({"experiment": "quickstart"}, plan_if_asked=True).root == "sweeps/quickstart"


def main_snakemake(home, site, **resources):
    """The main Snakemake of a sweep at a Slurm site, its Snakefile read."""
    overrides = " ".join(["site=slurm_example", "accelerator=cpu", *site])
    config = ConfigSettings(config={"experiment": "quickstart", "overrides": overrides})
    with SnakemakeApi() as snakemake:
        snakefile = Path(__file__).resolve().parents[2] / "Snakefile"
        return snakemake.workflow(ResourceSettings(**resources), config, snakefile=snakefile, workdir=home)._workflow


def test_quotes_that_would_not_reach_slurms_jobs_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    """Snakemake 9 puts the config of its command line into that of each job, and a shell reads it once more."""
    monkeypatch.chdir(tmp_path)
    quoted = "accelerator=cpu '+note=two words'"
    with pytest.raises(WorkflowError, match="Write such a value into a file of conf/"):
        sweep_of_config({"experiment": "quickstart", "overrides": f"site=slurm_example {quoted}"}, plan_if_asked=True)
    assert not (tmp_path / "sweeps").exists()
    sweep_of_config({"experiment": "quickstart", "overrides": quoted}, plan_if_asked=True)


def test_snakemake_alone_keeps_to_the_sites_limits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limits = ("site.slurm.max_gpus=8", "site.slurm.max_jobs=3")
    told_nothing = main_snakemake(tmp_path, limits, nodes=50)
    assert (told_nothing.nodes, told_nothing.global_resources[GPUS_HELD].value) == (3, 8)
    told_less = main_snakemake(tmp_path, limits, nodes=2, resources={GPUS_HELD: 4})
    assert (told_less.nodes, told_less.global_resources[GPUS_HELD].value) == (2, 4)
    no_limits = main_snakemake(tmp_path, ("site.slurm.max_gpus=null", "site.slurm.max_jobs=null"), nodes=50)
    assert no_limits.nodes == 50
    assert GPUS_HELD not in no_limits.global_resources


def test_jobs_get_no_secrets_but_those_listed_and_sbatch_no_orders_and_the_user_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    given = {"HF_TOKEN": "x", "WANDB_API_KEY": "x", "STORE": "postgresql://me:pass@h/db", "TOKENIZERS_PARALLELISM": "0"}
    os.environ |= given | {"SBATCH_WAIT": "1", "SQUEUE_SORT": "i", "SNAKEMAKE_SLURM_PARTITIONS": "theirs.yaml"}
    config = {
        "experiment": "quickstart",
        "overrides": "site=slurm_example accelerator=cpu site.slurm.secrets=[HF_TOKEN]",
    }
    sweep = sweep_of_config(config, plan_if_asked=True)
    assert {"SBATCH_WAIT", "SQUEUE_SORT", "SNAKEMAKE_SLURM_PARTITIONS"}.isdisjoint(os.environ)
    assert given.items() <= os.environ.items(), "data may be downloaded yet"
    capsys.readouterr()
    sweep.leave_secrets_behind()
    assert given.keys() & os.environ.keys() == {"HF_TOKEN", "TOKENIZERS_PARALLELISM"}
    told = capsys.readouterr().err
    assert "jobs do not get STORE, WANDB_API_KEY: if they need one, list it in site.slurm.secrets" in told


def test_on_this_machine_the_runs_keep_all_variables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {"HF_TOKEN": "x", "SBATCH_ACCOUNT": "mine"}
    sweep_of_config({"experiment": "quickstart"}, plan_if_asked=True).leave_secrets_behind()
    assert {"HF_TOKEN", "SBATCH_ACCOUNT"} <= os.environ.keys()


def test_the_limits_of_a_kind_of_node_bound_its_jobs_alone():
    gpus = [{"accelerator": "cuda", "model": "m", "count": 4}]
    kinds = [
        {"name": "cpu", "inventory": [{"accelerator": "cpu", "model": "m", "count": 8}]},
        {"name": "a100", "inventory": gpus},
        {"name": "h100", "inventory": gpus, "slurm": {"max_gpus": 2, "max_jobs": 1}},
    ]
    site = Site.model_validate({"name": "s", "scheduler": "slurm", "slurm": {"max_jobs": 9}, "kinds": kinds})
    assert limits(site) == {GPUS_HELD: None, "_nodes": 9, "kind_2_gpus_held": 2, "kind_2_jobs": 1}
    asked = {kind["name"]: taken(Resources(node_kind=kind["name"]), site) for kind in kinds}
    assert {name: tuple(each.values()) for name, each in asked.items()} == {
        "cpu": (0, 0, 0),
        "a100": (4, 0, 0),
        "h100": (4, 2, 1),
    }
    assert {tuple(each) for each in asked.values()} == {(GPUS_HELD, "kind_2_gpus_held", "kind_2_jobs")}


def test_snakemake_holds_a_kind_to_its_own_limits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "conf/site/mix.yaml").write_text(
        "name: mix\nscheduler: slurm\nprobe: false\nkinds:\n"
        "  - {name: plain, inventory: [{accelerator: cpu, model: m, count: 8}], slurm: {max_jobs: 2}}\n"
    )
    main = main_snakemake(tmp_path, ("site=mix",))
    assert main.global_resources["kind_0_jobs"].value == 2
    (rule,) = [rule for rule in main.rules if rule.name == "block"]
    assert {"kind_0_jobs", "kind_0_gpus_held", GPUS_HELD} <= set(rule.resources)


def planned(home, *overrides):
    plan = make_plan(home, ["experiment=quickstart", *overrides])
    return Sweep(SweepFolder(home, plan.manifest.sweep), plan.manifest)


def test_what_triggers_a_rerun_follows_the_versions_and_the_users_sources(tmp_path):
    sweep = planned(tmp_path)
    changed = sweep.manifest.model_copy(update={"versions": sweep.manifest.versions | {"torch": "0"}})
    assert Sweep(sweep.folder, changed).software != sweep.software
    changed = sweep.manifest.model_copy(update={"sources": {"mypackage": "0"}})
    assert Sweep(sweep.folder, changed).software != sweep.software


def test_changed_limits_trigger_nothing(tmp_path):
    assert planned(tmp_path, "limits.run_seconds=99").software == planned(tmp_path).software


def test_each_block_has_one_rule_by_the_nodes_it_takes(tmp_path):
    sweep = planned(tmp_path, "site=slurm_example", "accelerator=cpu", "num_nodes=1,2", "devices=2")
    blocks = {block.name: block.resources.nodes for block in sweep.manifest.blocks}
    assert set(blocks.values()) == {1, 2}
    for across_nodes in (False, True):
        pattern = re.compile(sweep.blocks(across_nodes=across_nodes))
        assert {name for name in blocks if pattern.fullmatch(name)} == {
            name for name, nodes in blocks.items() if (nodes > 1) is across_nodes
        }


def test_a_sweep_on_one_node_leaves_nothing_to_the_rule_for_several(tmp_path):
    sweep = planned(tmp_path)
    (name, *_) = (block.name for block in sweep.manifest.blocks)
    assert re.fullmatch(sweep.blocks(across_nodes=False), name)
    assert not re.fullmatch(sweep.blocks(across_nodes=True), name)

"""The Snakefile's view of a sweep, and how a sweep is named on Snakemake's command line."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from projects import copy_project
from snakemake.api import SnakemakeApi
from snakemake.cli import parse_config
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import ConfigSettings, ResourceSettings
from tiny_sweep import plan_sweep

import accelsweep
from accelsweep.config.site import Site
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import run_sweep
from accelsweep.driver.snakefile_functions import (
    _NOT_MEASURING,
    GPUS_HELD,
    PYTHON_VARIABLE,
    SWEEP_VARIABLE,
    Sweep,
    check_profile,
    code_digest,
    load_sweep,
    resource_limits,
    resource_usage,
)
from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.job_environment import KEPT_THREADS_VARIABLE
from accelsweep.schedulers.protocol import Resources


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Variables that a main Snakemake sets are another sweep's at first, and are reset afterwards."""
    for name in (SWEEP_VARIABLE, KEPT_THREADS_VARIABLE):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv(PYTHON_VARIABLE, "another")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["1e3", "007", "true", "2026.1", "plain"])
def test_a_name_that_looks_like_a_number_stays_a_name(name, tmp_path, monkeypatch):
    write_plan(tmp_path, make_plan(tmp_path, ["experiment=quickstart"], name=name))
    monkeypatch.chdir(tmp_path)
    sweep = load_sweep(parse_config([f"sweep=sweeps/{name}"]), is_main=False)
    assert sweep.root == f"sweeps/{name}"
    assert sweep.results[-1] == f"reports/{name}/index.html"


@pytest.mark.heavy
def test_an_unknown_sweep_is_an_error_without_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="no sweep 'nothing'"):
        load_sweep({"sweep": "nothing"}, is_main=True)


@pytest.mark.heavy
def test_snakemake_without_a_sweep_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="--config experiment=NAME"):
        load_sweep({}, is_main=True)


@pytest.mark.heavy
def test_a_spent_time_budget_does_not_stop_a_later_snakemake(tmp_path, monkeypatch):
    folder = write_plan(tmp_path, make_plan(tmp_path, ["experiment=quickstart"]))
    monkeypatch.chdir(tmp_path)
    folder.stop.touch()
    with lock_sweep(folder):
        load_sweep({"sweep": folder.name}, is_main=True)
        assert folder.stop.exists(), "only its driver may delete it"
    load_sweep({"sweep": folder.name}, is_main=False)
    assert folder.stop.exists(), "a job must not delete it"
    load_sweep({"sweep": folder.name}, is_main=True)
    assert not folder.stop.exists()


OTHERWISE = """\
# @package _global_
name: otherwise
accelerator: cpu
"""


JOB = """
import sys
from snakemake.cli import parse_config
from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.driver.snakefile_functions import load_sweep
print(load_sweep(parse_config(sys.argv[1:]), is_main=False).root)
"""


@pytest.mark.heavy
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
    assert load_sweep(parse_config(given), is_main=True).root == f"sweeps/{name}"
    (tmp_path / "conf" / "experiment" / "otherwise.yaml").write_text("name: edited")
    assert load_sweep(parse_config(given), is_main=False).root == f"sweeps/{name}"


@pytest.mark.heavy
def test_snakemake_alone_plans_a_training_script_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(copy_project("script", tmp_path))
    given = parse_config(["entry=python train.py --hidden 8", "overrides=batch_size=8,16 quality=val_acc"])
    sweep = load_sweep(given, is_main=True)
    assert (sweep.root, len(sweep.manifest.settings)) == ("sweeps/train", 2)
    assert sweep.manifest.entry_arguments == ["--entry", "python train.py --hidden 8"]
    assert load_sweep(given, is_main=False).root == "sweeps/train"
    with pytest.raises(WorkflowError, match=r"there is no Python script other\.py"):
        load_sweep({"entry": "python other.py"}, is_main=True)


@pytest.mark.heavy
def test_a_job_in_another_process_finds_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["experiment=quickstart", "overrides=name=x batch_size=8,16"]
    load_sweep(parse_config(given), is_main=True)
    said = subprocess.run([sys.executable, "-c", JOB, *given], capture_output=True, text=True, check=False)
    assert said.stdout == "sweeps/x\n", said.stderr


@pytest.mark.heavy
def test_snakemake_alone_ends_automatic_repeats_with_the_pilot_and_says_how_to_continue(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sweep = load_sweep(parse_config(["experiment=quickstart", "overrides=repeats=auto"]), is_main=True)
    assert len(sweep.done_files) == len(sweep.manifest.blocks) == 3
    assert "Then continue with: accelsweep run experiment=quickstart repeats=auto" in capsys.readouterr().err


@pytest.mark.heavy
def test_the_plan_of_a_running_sweep_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lock_sweep(SweepFolder(tmp_path, "quickstart")):
        with pytest.raises(WorkflowError, match="sweep 'quickstart' is already being run by process"):
            load_sweep({"experiment": "quickstart"}, is_main=True)
        assert not SweepFolder(tmp_path, "quickstart").manifest.exists()
    assert load_sweep({"experiment": "quickstart"}, is_main=True).root == "sweeps/quickstart"


def main_snakemake(home, site, **resources):
    """Return the main Snakemake workflow of a sweep at a Slurm site, with its Snakefile loaded."""
    overrides = " ".join(["site=slurm_example", "accelerator=cpu", *site])
    config = ConfigSettings(config={"experiment": "quickstart", "overrides": overrides})
    with SnakemakeApi() as snakemake:
        snakefile = Path(__file__).resolve().parents[2] / "Snakefile"
        return snakemake.workflow(ResourceSettings(**resources), config, snakefile=snakefile, workdir=home)._workflow


@pytest.mark.heavy
def test_quotes_that_would_not_reach_slurm_jobs_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    """Snakemake 9 copies the config into the command line of each job, where a shell parses it again."""
    monkeypatch.chdir(tmp_path)
    quoted = "accelerator=cpu '+note=two words'"
    with pytest.raises(WorkflowError, match="Write such a value to a file in conf/"):
        load_sweep({"experiment": "quickstart", "overrides": f"site=slurm_example {quoted}"}, is_main=True)
    assert not (tmp_path / "sweeps").exists()
    load_sweep({"experiment": "quickstart", "overrides": quoted}, is_main=True)


@pytest.mark.heavy
def test_snakemake_alone_respects_the_sites_limits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limits = ("site.slurm.max_gpus=8", "site.slurm.max_jobs=3")
    unlimited = main_snakemake(tmp_path, limits, nodes=50)
    assert (unlimited.nodes, unlimited.global_resources[GPUS_HELD].value) == (3, 8)
    limited = main_snakemake(tmp_path, limits, nodes=2, resources={GPUS_HELD: 4})
    assert (limited.nodes, limited.global_resources[GPUS_HELD].value) == (2, 4)
    no_limits = main_snakemake(tmp_path, ("site.slurm.max_gpus=null", "site.slurm.max_jobs=null"), nodes=50)
    assert no_limits.nodes == 50
    assert GPUS_HELD not in no_limits.global_resources


@pytest.mark.heavy
def test_jobs_get_only_listed_secrets_and_sbatch_no_options_and_the_user_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    given = {"HF_TOKEN": "x", "WANDB_API_KEY": "x", "STORE": "postgresql://me:pass@h/db", "TOKENIZERS_PARALLELISM": "0"}
    os.environ |= given | {"SBATCH_WAIT": "1", "SQUEUE_SORT": "i", "SNAKEMAKE_SLURM_PARTITIONS": "theirs.yaml"}
    config = {
        "experiment": "quickstart",
        "overrides": "site=slurm_example accelerator=cpu site.slurm.secrets=[HF_TOKEN]",
    }
    sweep = load_sweep(config, is_main=True)
    assert {"SBATCH_WAIT", "SQUEUE_SORT", "SNAKEMAKE_SLURM_PARTITIONS"}.isdisjoint(os.environ)
    assert given.items() <= os.environ.items(), "a later download of data may need them"
    capsys.readouterr()
    sweep.remove_secrets()
    assert given.keys() & os.environ.keys() == {"HF_TOKEN", "TOKENIZERS_PARALLELISM"}
    output = capsys.readouterr().err
    assert "jobs do not receive STORE, WANDB_API_KEY; if they need one, list it in site.slurm.secrets" in output


@pytest.mark.heavy
def test_runs_on_this_machine_keep_all_variables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {"HF_TOKEN": "x", "SBATCH_ACCOUNT": "mine"}
    load_sweep({"experiment": "quickstart"}, is_main=True).remove_secrets()
    assert {"HF_TOKEN", "SBATCH_ACCOUNT"} <= os.environ.keys()


@pytest.mark.heavy
def test_the_limits_of_a_kind_of_node_apply_to_its_jobs_alone():
    gpus = [{"accelerator": "cuda", "model": "m", "count": 4}]
    kinds = [
        {"name": "cpu", "inventory": [{"accelerator": "cpu", "model": "m", "count": 8}]},
        {"name": "a100", "inventory": gpus},
        {"name": "h100", "inventory": gpus, "slurm": {"max_gpus": 2, "max_jobs": 1}},
    ]
    site = Site.model_validate({"name": "s", "scheduler": "slurm", "slurm": {"max_jobs": 9}, "kinds": kinds})
    assert resource_limits(site) == {GPUS_HELD: None, "_nodes": 9, "kind_2_gpus_held": 2, "kind_2_jobs": 1}
    asked = {kind["name"]: resource_usage(Resources(node_kind=kind["name"]), site) for kind in kinds}
    assert {name: tuple(each.values()) for name, each in asked.items()} == {
        "cpu": (0, 0, 0),
        "a100": (4, 0, 0),
        "h100": (4, 2, 1),
    }
    assert {tuple(each) for each in asked.values()} == {(GPUS_HELD, "kind_2_gpus_held", "kind_2_jobs")}


@pytest.mark.heavy
def test_snakemake_applies_the_limits_of_a_kind_of_node(tmp_path, monkeypatch):
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


@pytest.mark.parametrize(("data", "needed"), [("accelsweep.workloads.datasets.Digits", False), ("mydata.Mine", True)])
def test_a_process_that_prepares_data_is_started_for_the_users_data_only(data, needed, tmp_path):
    folder, _ = plan_sweep(tmp_path, [{"data": {"_target_": data}}])
    assert Sweep(folder, Manifest.read(folder.manifest)).needs_preparation() is needed


@pytest.mark.heavy
def test_changed_versions_and_user_sources_trigger_a_rerun(tmp_path):
    sweep = planned(tmp_path)
    changed = sweep.manifest.model_copy(update={"versions": sweep.manifest.versions | {"torch": "0"}})
    assert Sweep(sweep.folder, changed).software_digest != sweep.software_digest
    changed = sweep.manifest.model_copy(update={"sources": {"mypackage": "0"}})
    assert Sweep(sweep.folder, changed).software_digest != sweep.software_digest


@pytest.mark.heavy
def test_changed_limits_trigger_no_rerun(tmp_path):
    assert planned(tmp_path, "limits.run_seconds=99").software_digest == planned(tmp_path).software_digest


@pytest.mark.heavy
def test_each_block_matches_one_rule_by_its_number_of_nodes(tmp_path):
    sweep = planned(tmp_path, "site=slurm_example", "accelerator=cpu", "num_nodes=1,2", "devices=2")
    blocks = {block.name: block.resources.nodes for block in sweep.manifest.blocks}
    assert set(blocks.values()) == {1, 2}
    for across_nodes in (False, True):
        pattern = re.compile(sweep.block_pattern(multi_node=across_nodes))
        assert {name for name in blocks if pattern.fullmatch(name)} == {
            name for name, nodes in blocks.items() if (nodes > 1) is across_nodes
        }


@pytest.mark.heavy
def test_no_block_on_one_node_matches_the_multi_node_rule(tmp_path):
    sweep = planned(tmp_path)
    (name, *_) = (block.name for block in sweep.manifest.blocks)
    assert re.fullmatch(sweep.block_pattern(multi_node=False), name)
    assert not re.fullmatch(sweep.block_pattern(multi_node=True), name)


PACKAGE = Path(accelsweep.__file__).parent
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ROOT_MODULES = sorted(path.name for path in PACKAGE.glob("*.py"))


def fake_package(folder: Path) -> Path:
    """Return a package in `folder` with our packages and root modules, and a little code in each."""
    for name in PACKAGES:
        (folder / name / "deeper").mkdir(parents=True)
        (folder / name / "code.py").write_text("first", "utf-8")
        (folder / name / "deeper" / "table.csv").write_text("first", "utf-8")
    for name in ROOT_MODULES:
        (folder / name).write_text("first", "utf-8")
    return folder


def change(place: Path) -> None:
    (place / "code.py" if place.is_dir() else place).write_text("second", "utf-8")


def change_deeper(place: Path) -> None:
    (place / "deeper" / "table.csv" if place.is_dir() else place).write_text("second", "utf-8")


def add(place: Path) -> None:
    (place / "deeper" / "more.py" if place.is_dir() else place.with_name(f"more_{place.name}")).write_text("", "utf-8")


def rename(place: Path) -> None:
    old = place / "code.py" if place.is_dir() else place
    old.rename(old.with_name(f"other_{old.name}"))


edits = pytest.mark.parametrize("edit", [change, change_deeper, add, rename], ids=lambda edit: edit.__name__)


def after_each(edit: Callable[[Path], None], package: Path) -> Iterator[tuple[str, Path]]:
    """Edit one place of a package after the other, under a new path each time, because digests of a path are kept."""
    for name in (*PACKAGES, *ROOT_MODULES):
        package = package.rename(package.with_name(f"edited {name}"))
        edit(package / name)
        yield name, package


@edits
def test_an_edit_in_any_package_changes_the_digest(tmp_path: Path, edit: Callable[[Path], None]) -> None:
    digests = [code_digest(package=fake_package(tmp_path / "unedited"))]
    assert [code_digest(package=fake_package(tmp_path / "the same"))] == digests
    for name, package in after_each(edit, tmp_path / "unedited"):
        digests.append(code_digest(package=package))
        assert digests[-1] not in digests[:-1], name


@edits
def test_an_edit_outside_the_measuring_code_keeps_its_digest(tmp_path: Path, edit: Callable[[Path], None]) -> None:
    before = code_digest(without=_NOT_MEASURING, package=fake_package(tmp_path / "unedited"))
    for name, package in after_each(edit, tmp_path / "unedited"):
        after = code_digest(without=_NOT_MEASURING, package=package)
        if not (name.endswith(".py") and edit in (add, rename)):  # creates a module, which `_NOT_MEASURING` cannot list
            assert (after == before) == (name in _NOT_MEASURING), name
        before = after


def test_installed_code_has_the_digest_of_the_same_code_in_a_checkout(tmp_path: Path) -> None:
    """An installation has the folder `shipped`, and a checkout may have bytecode of moved packages."""
    before = code_digest(package=fake_package(tmp_path / "unedited"))
    installed = fake_package(tmp_path / "installed")
    for name in ("shipped/conf/config.yaml", "moved_away/__pycache__/code.pyc", "__pycache__/__init__.pyc"):
        (installed / name).parent.mkdir(parents=True)
        (installed / name).write_text("", "utf-8")
    assert code_digest(package=installed) == before


def test_the_packages_outside_the_measuring_code_exist() -> None:
    assert {*_NOT_MEASURING} <= {*PACKAGES, *ROOT_MODULES}


def imported_by(path: Path) -> Iterator[Path]:
    """Yield the files of our modules that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            place = PACKAGE.parent / name.replace(".", "/")
            found = (place.with_suffix(".py"), place / "__init__.py")
            yield from (file for file in found if name.startswith("accelsweep.") and file.is_file())


def test_everything_an_executor_imports_is_in_the_digest_of_the_measuring_code() -> None:
    reached = sorted((PACKAGE / "executor").rglob("*.py"))
    for path in reached:
        if path.name == "early_stop.py":
            continue  # it decides which repeats are left out, not how one is measured
        reached.extend(sorted({*imported_by(path)} - {*reached}))
    files = {path.relative_to(PACKAGE).as_posix() for path in reached}
    assert {
        "worker/rank_measurement.py",
        "measure/timed_window.py",
        "workloads/instantiate.py",
        "json_documents.py",
    } <= files
    outside = {file for file in files if file.partition("/")[0] in _NOT_MEASURING}
    assert outside == {"analysis/intervals.py"}, "only a formula with one right value, Student's t, may be there"


@pytest.mark.parametrize(("scheduler", "executor"), [("slurm", "local"), ("local", "slurm")])
def test_a_profile_that_does_not_fit_the_site_is_refused(tmp_path, scheduler, executor):
    (tmp_path / "profile.yaml").write_text(f"# comment\nexecutor: {executor}\n")
    with pytest.raises(InputError, match="site"):
        check_profile(str(tmp_path), Site(name="here", scheduler=scheduler))
    check_profile(str(tmp_path), Site(name="here", scheduler=executor))


@pytest.mark.parametrize("scheduler", ["local", "slurm", "grid_engine"])
def test_the_profile_of_a_scheduler_fits_its_sites_only(scheduler):
    for profile in ("local", "slurm", "grid_engine"):
        site = Site(name="here", scheduler=scheduler)
        if profile == scheduler:
            check_profile(profile, site)
        else:
            with pytest.raises(InputError, match=f"--profile {scheduler}"):
                check_profile(profile, site)


def test_a_missing_executor_plugin_is_an_error_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_cluster_generic", None)
    site = Site(name="here", scheduler="grid_engine")
    with pytest.raises(InputError, match=re.escape("'cluster-generic': pip install 'accelsweep[grid-engine]'")):
        check_profile("grid_engine", site)


@pytest.mark.parametrize(("profile", "program"), [("slurm", "sbatch"), ("grid_engine", "qsub")])
def test_a_machine_without_the_profiles_scheduler_is_an_error_before_planning(monkeypatch, tmp_path, profile, program):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"--profile {profile} submits to .*, but this machine has no {program}"):
        run_sweep(tmp_path, Request(overrides=("no such override",), profile=profile))
    assert list(tmp_path.iterdir()) == []

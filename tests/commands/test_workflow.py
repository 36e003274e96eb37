"""What the Snakefile is told of a sweep, and how it is named on Snakemake's command line."""

import re

import pytest
from snakemake.cli import parse_config
from snakemake.exceptions import WorkflowError

from accelsweep.commands.workflow import Sweep, open_sweep
from accelsweep.core.folders import SweepFolder
from accelsweep.plan.make import make_plan, write_plan


@pytest.mark.parametrize("name", ["1e3", "007", "true", "2026.1", "plain"])
def test_a_name_that_looks_like_a_number_stays_a_name(name, tmp_path, monkeypatch):
    write_plan(tmp_path, make_plan(tmp_path, ["experiment=quickstart"], name=name))
    monkeypatch.chdir(tmp_path)
    sweep = open_sweep(parse_config([f"sweep=sweeps/{name}"]), plan_if_asked=False)
    assert sweep.root == f"sweeps/{name}"
    assert sweep.report == f"reports/{name}/index.html"


def test_an_unknown_sweep_is_told_without_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="no sweep 'nothing'"):
        open_sweep({"sweep": "nothing"}, plan_if_asked=True)


def test_snakemake_without_a_sweep_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowError, match="--config experiment=NAME"):
        open_sweep({}, plan_if_asked=True)


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

"""Blocks of a fleet: one per node and round, with all settings, reused when the fleet changes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

from accelsweep.config.site import Slurm
from accelsweep.errors import InputError
from accelsweep.features.fleet.planning import Fleet
from accelsweep.planning.plan import Plan, make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.slurm import in_words, job_resources, sbatch_options

ASKED = ["experiment=quickstart", "site=slurm_example", "accelerator=cpu", "devices=1", "precision=32-true"]


def planned(home: Path, *nodes: str, each: int = 2, overrides: tuple[str, ...] = ()) -> Plan:
    return make_plan(home, [*ASKED, *overrides], name="fleet", part=Fleet(nodes=nodes, each=each))


def by_node(plan: Plan) -> Counter[str | None]:
    return Counter(block.resources.node for block in plan.manifest.blocks)


def test_each_node_measures_all_settings_in_each_round(home: Path) -> None:
    plan = planned(home, "n1", "n2", "n3")
    assert [block.resources.node for block in plan.manifest.blocks] == ["n1", "n2", "n3"] * 2
    names = {setting.name for setting in plan.settings}
    for block in plan.new_blocks:
        assert {run.setting for run in block.runs} == names
    assert plan.manifest.options.repeats == 6
    runs = [run for block in plan.new_blocks for run in block.runs]
    assert len({run.name for run in runs}) == len(runs)


def test_a_written_fleet_is_read_back_with_the_node_of_each_block(home: Path) -> None:
    folder = write_plan(home, planned(home, "n1", "n2"))
    manifest = Manifest.read(folder.manifest)
    assert manifest.part(Fleet) == Fleet(nodes=("n1", "n2"), each=2)
    assert {Block.read(folder.block(block.name)).resources.node for block in manifest.blocks} == {"n1", "n2"}
    assert not planned(home, "n1", "n2").changed


def test_more_rounds_and_more_nodes_keep_existing_blocks(home: Path) -> None:
    first = planned(home, "n1", "n2")
    write_plan(home, first)
    grown = planned(home, "n1", "n2", "n3", each=3)
    assert by_node(grown) == {"n1": 3, "n2": 3, "n3": 3}
    assert [block.name for block in grown.manifest.blocks[:4]] == [block.name for block in first.manifest.blocks]
    assert Counter(block.resources.node for block in grown.new_blocks) == {"n1": 1, "n2": 1, "n3": 3}


def test_a_removed_node_keeps_its_finished_blocks_and_gets_no_new_ones(home: Path) -> None:
    first = planned(home, "n1", "n2", "n3")
    folder = write_plan(home, first)
    finished = next(block.name for block in first.manifest.blocks if block.resources.node == "n3")
    Done(block=finished, records={}).write(folder.done(finished))
    left = planned(home, "n1", "n2")
    assert by_node(left) == {"n1": 2, "n2": 2, "n3": 1}
    assert left.new_blocks == ()


def test_an_additional_setting_is_measured_on_every_node_with_the_others(home: Path) -> None:
    write_plan(home, planned(home, "n1", "n2", overrides=("batch_size=32,128",)))
    wider = planned(home, "n1", "n2", overrides=("batch_size=32,64,128",))
    assert len(wider.new_blocks) == 4
    assert {Run.parse(run).setting for block in wider.manifest.blocks for run in block.runs} == {
        setting.name for setting in wider.settings
    }


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("num_nodes=1,2",), "compares single nodes"),
        (("accelerator=cpu,cuda", "~baseline.accelerator"), "need different kinds of jobs"),
        (("block.size=1",), "takes 2 runs, but a block is limited to 1"),
    ],
)
def test_settings_that_cannot_share_a_job_are_refused(home: Path, overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(InputError, match=why):
        planned(home, "n1", "n2", overrides=overrides)
    assert not SweepFolder(home, "fleet").root.exists()


def test_the_node_is_requested_last_so_that_the_plugin_misreads_nothing() -> None:
    """In the middle of the options, `rack-c --reservation` would be read as an option `-c` and refused."""
    for slurm in (Slurm(extra="--reservation=mine"), Slurm(exclusive=False)):
        asked = str(job_resources(Resources(node="rack-c"), slurm)["slurm_extra"])
        assert asked.endswith(" --nodelist=rack-c")
        assert [words for words in get_forbidden_slurm_options() if re.search(words, asked)] == []
    assert sbatch_options(Resources(node="n1"), Slurm()).endswith(" --nodelist=n1")
    assert in_words(Resources(node="n1"), Slurm()).startswith("n1, 1 CPU per node")
    assert "nodelist" not in str(job_resources(Resources(), Slurm())["slurm_extra"])

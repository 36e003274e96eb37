"""What Grid Engine is asked for, and what is read from its answers; tests/slurm/test_any_engine.py has the real thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import InputError
from accelsweep.core.plans import Resources
from accelsweep.core.settings import Device, NodeKind, Site
from accelsweep.core.sites.grid_engine import GridEngine
from accelsweep.engines.grid_engine.ends import ended, last_word, own_words, read_account, succeeded
from accelsweep.engines.grid_engine.options import block_in, in_words, job_name, qsub_options
from accelsweep.engines.grid_engine.queue import read_jobs, remedy, waits
from accelsweep.engines.known import engine_of
from accelsweep.engines.this_job import memory_lines, this_job
from accelsweep.plan.make import make_plan

CPU = Device(accelerator="cpu", model="m", count=8)
BOX = GridEngine(queue="gpu.q", cpu_queue="cpu.q", project="mine", mem_mb=16000)
SITE = Site(name="box", scheduler="grid_engine", inventory=(CPU,), grid_engine=BOX)
NEEDS = Resources(cpus=2, gpus=4, gpu_model="h100", mem_mb=16000, minutes=24)
BLOCK = "b0123456789ab"


def test_a_job_that_is_alone_takes_all_slots_of_a_node_and_memory_is_counted_by_the_slot() -> None:
    assert qsub_options(NEEDS, BOX, SITE) == (
        "-pe smp 8 -l h_rt=1440 -l h_vmem=2000M -l gpu=4 -l gpu_type=h100 -q gpu.q -P mine"
    )
    assert in_words(NEEDS, BOX, SITE) == "8 slots, 4 GPUs (h100), 16000 MB, at most 24 minutes, queue gpu.q"


def test_a_job_that_shares_a_node_waits_for_its_sweeps_others_and_takes_the_slots_of_its_cores() -> None:
    shared = BOX.model_copy(update={"exclusive": False, "extra": "-l hostname=gpu1*"})
    asked = qsub_options(NEEDS.model_copy(update={"gpus": 0, "mem_mb": None}), shared, SITE)
    assert asked == "--in-turn -pe smp 2 -l h_rt=1440 -q cpu.q -P mine -l hostname=gpu1*"


def test_the_name_of_a_job_tells_the_sweep_the_folder_and_the_block(tmp_path: Path) -> None:
    name = job_name("a sweep", tmp_path, BLOCK)
    assert name.startswith("accelsweep-a-sweep-")
    assert block_in(name, tmp_path) == BLOCK
    assert block_in(name, tmp_path / "elsewhere") is None
    assert block_in("accelsweep-of-another", tmp_path) is None


def test_a_site_of_another_engine_is_written_as_it_was_before_grid_engine_was_known() -> None:
    old = Site(name="mine", scheduler="slurm", kinds=(NodeKind(name="a", inventory=(CPU,)),))
    assert "grid_engine" not in canonical_json(old.model_dump(mode="json"))
    assert Site.model_validate(SITE.model_dump(mode="json")) == SITE


def test_kinds_of_node_inherit_the_words_of_the_sites_engine(tmp_path: Path) -> None:
    kinds = [{"name": "a", "inventory": [CPU.model_dump()], "grid_engine": {"queue": "a.q"}}]
    site = Site.model_validate(
        {"name": "m", "scheduler": "grid_engine", "grid_engine": {"project": "p"}, "kinds": kinds}
    )
    engine = engine_of(site)
    assert engine is not None
    assert engine.command(Resources(cpus=1, node_kind="a")) == "qsub -pe smp 8 -q a.q -P p"


def test_several_nodes_are_unsupported_and_the_shipped_example_plans(tmp_path: Path) -> None:
    command = ["site=grid_engine_example", "accelerator=cpu,cuda", "devices=1"]
    assert {cell.unsupported for cell in make_plan(tmp_path, command).manifest.cells} == {None}
    wide = make_plan(tmp_path, [*command, "num_nodes=2", "+site.nodes=2"]).manifest.cells
    assert all("nothing here starts ranks on several nodes" in str(cell.unsupported) for cell in wide)


def test_a_mistake_in_the_sites_words_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"site\.grid_engine\.que.*'queue'"):
        make_plan(tmp_path, ["site=grid_engine_example", "accelerator=cuda", "+site.grid_engine.que=x"])

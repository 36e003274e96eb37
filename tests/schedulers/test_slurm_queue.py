"""The jobs of a sweep in the output of squeue; tests/slurm uses the real one."""

import pytest

from accelsweep.files import set_aside
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import advice, job_name_prefix, never_starts, read_jobs


def jobs_in(listing: str, sweep: SweepFolder) -> list[Job]:
    return read_jobs(listing, sweep.home, sweep.block_names())


def test_the_jobs_of_a_sweep_are_recognised_by_folder_and_block(example_sweep: SweepFolder):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    home = example_sweep.home
    listing = (
        f"12|RUNNING|None|gpu|gpu1|1:03|{home}|rule_block_wildcards_{example_sweep.name}_{block}\n"
        f"13|PENDING|Resources|gpu||0:00|/elsewhere|rule_block_wildcards_{example_sweep.name}_{block}\n"
        f"14|PENDING|Resources|gpu||0:00|{home}|rule_block_wildcards_other_b000000000000\n"
        f"15|PENDING|Resources|gpu||0:00|{home}|(null)\n"
    )
    (job,) = jobs_in(listing, example_sweep)
    assert str(job) == f"job 12 RUNNING on gpu1 for 1:03, block {block}"


def test_the_jobs_of_a_sweep_are_recognised_even_if_its_plan_and_a_block_are_damaged(example_sweep: SweepFolder):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    example_sweep.manifest.write_text("{")
    set_aside(example_sweep.block(block))
    listing = f"12|RUNNING|None|gpu|gpu1|1:03|{example_sweep.home}|rule_block_wildcards_x_{block}\n"
    assert [job.block for job in jobs_in(listing, example_sweep)] == [block]


def test_job_names_start_with_the_sweeps_name():
    assert job_name_prefix("a.sweep") == "accelsweep-a-sweep"
    assert len(job_name_prefix("x" * 90)) == 50


def test_a_waiting_job_has_its_reason(example_sweep: SweepFolder):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    (job,) = jobs_in(f"7|PENDING|Priority|gpu||0:00|{example_sweep.home}|rule_block_wildcards_x_{block}", example_sweep)
    assert "PENDING (Priority)" in str(job)


@pytest.mark.parametrize("reason", ["PartitionDown", "PartitionInactive"])
def test_a_closed_partition_is_named_with_a_remedy(example_sweep: SweepFolder, reason: str):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    (job,) = jobs_in(f"7|PENDING|{reason}|gpu||0:00|{example_sweep.home}|rule_block_wildcards_x_{block}", example_sweep)
    assert f"PENDING ({reason} of gpu)" in str(job)
    assert not never_starts(job.reason), "its administrators may open it"
    assert "partition gpu is closed" in advice(job.reason)
    assert "change site.slurm.partition" in advice(job.reason)
    assert advice("Priority") is None

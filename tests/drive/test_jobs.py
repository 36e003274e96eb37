"""What the head reads from squeue and from profiles, without a cluster; tests/slurm has the real thing."""

import re
import sys

import pytest

from accelsweep.config.site import Site
from accelsweep.driver.plan_preview import made_plan, show_plan
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import carried_out
from accelsweep.driver.snakefile_functions import check_profile, find_profile
from accelsweep.errors import InputError
from accelsweep.files import set_aside
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import advice, job_name_prefix, never_starts, read_jobs


def jobs_in(listing: str, sweep: SweepFolder) -> list[Job]:
    return read_jobs(listing, sweep.home, sweep.block_names())


def test_the_jobs_of_a_sweep_are_told_by_folder_and_block(example_sweep: SweepFolder):
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


def test_the_jobs_of_a_sweep_are_known_although_its_plan_and_a_block_are_damaged(example_sweep: SweepFolder):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    example_sweep.manifest.write_text("{")
    set_aside(example_sweep.block(block))
    listing = f"12|RUNNING|None|gpu|gpu1|1:03|{example_sweep.home}|rule_block_wildcards_x_{block}\n"
    assert [job.block for job in jobs_in(listing, example_sweep)] == [block]


def test_the_names_of_a_sweeps_jobs_begin_with_its_own():
    assert job_name_prefix("a.sweep") == "accelsweep-a-sweep"
    assert len(job_name_prefix("x" * 90)) == 50


def test_a_waiting_job_says_why_it_waits(example_sweep: SweepFolder):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    (job,) = jobs_in(f"7|PENDING|Priority|gpu||0:00|{example_sweep.home}|rule_block_wildcards_x_{block}", example_sweep)
    assert "PENDING (Priority)" in str(job)


@pytest.mark.parametrize(("scheduler", "executor"), [("slurm", "local"), ("local", "slurm")])
def test_a_profile_that_does_not_fit_the_site_is_refused(tmp_path, scheduler, executor):
    (tmp_path / "profile.yaml").write_text(f"# comment\nexecutor: {executor}\n")
    with pytest.raises(InputError, match="site"):
        check_profile(tmp_path, Site(name="here", scheduler=scheduler))
    check_profile(tmp_path, Site(name="here", scheduler=executor))


@pytest.mark.parametrize("scheduler", ["local", "slurm", "grid_engine"])
def test_the_profile_of_an_engine_fits_its_sites_and_no_others(scheduler):
    for profile in ("local", "slurm", "grid_engine"):
        site = Site(name="here", scheduler=scheduler)
        if profile == scheduler:
            check_profile(find_profile(profile), site)
        else:
            with pytest.raises(InputError, match=f"--profile {scheduler}"):
                check_profile(find_profile(profile), site)


def test_an_executor_that_snakemake_lacks_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_cluster_generic", None)
    site = Site(name="here", scheduler="grid_engine")
    with pytest.raises(InputError, match=re.escape("'cluster-generic': pip install 'accelsweep[grid-engine]'")):
        check_profile(find_profile("grid_engine"), site)


def test_a_plan_for_grid_engine_tells_its_jobs(tmp_path, capsys):
    show_plan(
        tmp_path,
        made_plan(tmp_path, Request(("site=grid_engine_example", "accelerator=cuda", "devices=8")), keep_profile=True),
    )
    told = capsys.readouterr().out
    assert "Grid Engine: 3 x 96 slots, 8 GPUs (h100), at most 13 minutes, queue gpu.q" in told
    assert "qsub -pe smp 96 -l h_rt=780 -l gpu=8 -l gpu_type=h100 -q gpu.q\n" in told


def test_a_plan_for_a_cluster_tells_its_jobs(tmp_path, capsys):
    show_plan(
        tmp_path,
        made_plan(tmp_path, Request(("site=slurm_example", "accelerator=cuda", "devices=8")), keep_profile=True),
    )
    told = capsys.readouterr().out
    assert "Slurm: 3 x 1 node, 96 CPUs per node, 8 GPUs (h100)" in told
    assert "sbatch --partition=gpu --account=my_project --time=13 --mem=128000 --nodes=1 --ntasks=1" in told
    assert "--cpus-per-task=96 --gpus=h100:8 --exclusive\n" in told


def test_a_plan_for_a_cluster_refuses_a_profile_for_one_machine(tmp_path):
    with pytest.raises(InputError, match="--profile slurm"):
        show_plan(tmp_path, made_plan(tmp_path, Request(("site=slurm_example", "accelerator=cuda"))))


@pytest.mark.parametrize("reason", ["PartitionDown", "PartitionInactive"])
def test_a_partition_that_is_closed_is_named_with_what_to_do(example_sweep: SweepFolder, reason: str):
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    (job,) = jobs_in(f"7|PENDING|{reason}|gpu||0:00|{example_sweep.home}|rule_block_wildcards_x_{block}", example_sweep)
    assert f"PENDING ({reason} of gpu)" in str(job)
    assert not never_starts(job.reason), "its staff may open it"
    assert "partition gpu is closed" in advice(job.reason)
    assert "change site.slurm.partition" in advice(job.reason)
    assert advice("Priority") is None


@pytest.mark.parametrize(("profile", "program"), [("slurm", "sbatch"), ("grid_engine", "qsub")])
def test_a_machine_without_the_engine_of_the_profile_is_told_before_anything_is_planned(
    monkeypatch, tmp_path, profile, program
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"--profile {profile} submits to .*, and this machine has no {program}"):
        carried_out(tmp_path, Request(overrides=("no such override",), profile=profile))
    assert list(tmp_path.iterdir()) == []

"""A block's resources in the words of the slurm executor plugin."""

import os
import shlex
import subprocess
from types import SimpleNamespace

import pytest

from accelsweep.config.site import Slurm
from accelsweep.schedulers.protocol import Resources, python
from accelsweep.schedulers.slurm import (
    across_nodes,
    before_block,
    in_words,
    is_unreachable,
    job_resources,
    keys_for,
    queue_limit,
    refuse_unfit_slurm,
    sbatch_options,
)

BOX = Slurm(partition="gpu", cpu_partition="cpu", account="physics", gpu_model="h100")
ONE_NODE = Resources(cpus=8, gpus=4, gpu_model="h100", mem_mb=64000, minutes=24)


def test_gpus_of_one_node_are_requested_on_one_node():
    asked = job_resources(ONE_NODE, BOX)
    assert (asked["gpu"], asked["gpu_model"], asked["nodes"], asked["cpus_per_task"]) == (4, "h100", 1, 8)
    assert (asked["runtime"], asked["mem_mb"], asked["slurm_partition"]) == (24, 64000, "gpu")


def test_without_mem_mb_the_partitions_default_applies_and_snakemake_gets_a_number():
    """Snakemake converts the unit of `mem_mb` and refuses None; for 0 its plugin omits `--mem`."""
    for needs in (Resources(minutes=24), Resources(nodes=2, tasks=2, minutes=24)):
        assert job_resources(needs, BOX)["mem_mb"] == 0
        assert "--mem" not in sbatch_options(needs, BOX)
        assert "the partition's default memory" in in_words(needs, BOX)
    assert "--mem=64000" in sbatch_options(ONE_NODE, BOX)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("Invalid account or account/partition combination specified", ("account", "partition")),
        ("Invalid qos specification", ("qos",)),
        ("invalid partition specified: nonesuch; Invalid partition name specified", ("partition",)),
        ("User's group not permitted to use this partition", ("partition",)),
        ("Requested time limit is invalid (missing or exceeds some limit)", ("max_minutes",)),
        ("Memory specification can not be satisfied", ("mem_mb",)),
        ("Invalid generic resource (gres) specification", ("gpu_model", "max_gpus")),
        ("Invalid feature specification", ("constraint",)),
        ("Requested reservation is invalid", ("extra",)),
        ("QOSMaxWallDurationPerJobLimit; Job violates accounting/QOS policy (job submit limit, ...)", ("max_minutes",)),
        ("AssocMaxSubmitJobLimit; Job violates accounting/QOS policy (job submit limit, ...)", ("max_jobs",)),
        ("QOSMaxGRESPerUser", ("gpu_model", "max_gpus")),
        ("AssocMaxWallDurationPerJobLimit", ("max_minutes",)),
        ("The moon is full", ()),
    ],
)
def test_slurms_refusals_map_to_keys_of_the_site(words, keys):
    assert keys_for(words) == keys


@pytest.mark.parametrize(
    ("words", "limit", "silent"),
    [
        ("sbatch: error: AssocMaxSubmitJobLimit", "AssocMaxSubmitJobLimit", False),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", "QOSMaxSubmitJobPerUserLimit", False),
        ("sbatch: error: AssocGrpSubmitJobsLimit", "AssocGrpSubmitJobsLimit", False),
        ("Unable to contact slurm controller (connect failure)", None, True),
        ("Socket timed out on send/recv operation", None, True),
        ("Invalid qos specification", None, False),
        ("AssocMaxWallDurationPerJobLimit", None, False),
    ],
)
def test_temporary_refusals_are_distinguished_from_permanent_ones(words, limit, silent):
    assert queue_limit(words) == limit
    assert is_unreachable(words) is silent


def test_gpus_of_several_nodes_are_requested_per_node_with_one_task_each():
    wide = Resources(nodes=2, tasks=2, cpus=8, gpus=4, gpu_model="h100")
    asked = job_resources(wide, BOX) | across_nodes(wide)
    assert (asked["nodes"], asked["tasks"], asked["gpu"], asked["cpus_per_task"]) == (2, 2, 4, 8)
    assert asked["slurm_extra"] == "--exclusive --gpus-per-node=h100:2"
    assert asked["mpi"]
    assert job_resources(Resources(nodes=2, tasks=2), BOX)["slurm_extra"] == "--exclusive"


@pytest.mark.parametrize(
    ("request_by", "gpu", "gres", "extra"),
    [
        ("gpus", 4, "", "--exclusive"),
        ("gres", 0, "gpu:h100:4", "--exclusive"),
        ("per_node", 0, "", "--exclusive --gpus-per-node=h100:4"),
    ],
)
def test_gpus_are_requested_with_the_option_of_the_site(request_by, gpu, gres, extra):
    slurm = BOX.model_copy(update={"gpu_request": request_by})
    asked = job_resources(ONE_NODE, slurm)
    assert (asked["gpu"], asked["gres"], asked["slurm_extra"]) == (gpu, gres, extra)
    printed = sbatch_options(ONE_NODE, slurm)
    assert [printed.count(word) for word in ("h100:4", "--gres=gpu:", "--gpus=")] == [1, bool(gres), bool(gpu)]


class Asked(dict):
    """Resources as the plugin reads them, by name and as attributes."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize(
    ("model", "request_by", "asked"),
    [
        ("1g.10gb", "gpus", " --gpus=1g.10gb:2"),
        ("1g.10gb", "gres", " --gres=gpu:1g.10gb:2"),
        ("1g.10gb", "per_node", "--gpus-per-node=1g.10gb:2"),
        ("nvidia_a100-sxm4-80gb", "per_node", "--gpus-per-node=nvidia_a100-sxm4-80gb:2"),
    ],
)
def test_mig_profiles_and_vendor_names_pass_the_checks_of_the_executor_plugin(model, request_by, asked):
    """Otherwise the plugin would refuse at submission what the plan accepted."""
    from snakemake_executor_plugin_slurm.utils import set_gres_string
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    slurm = Slurm(gpu_model=model, gpu_request=request_by)
    refuse_unfit_slurm(slurm, "site.slurm", str)
    found = job_resources(Resources(gpus=2, gpu_model=model), slurm)
    job = SimpleNamespace(resources=Asked(found))
    validate_slurm_extra(job)
    assert asked in f"{set_gres_string(job)} {found['slurm_extra']}"


def test_a_block_without_gpus_names_no_model_and_uses_the_cpu_partition():
    asked = job_resources(Resources(cpus=2), BOX)
    assert (asked["gpu"], asked["gpu_model"], asked["slurm_partition"]) == (0, None, "cpu")
    assert job_resources(Resources(), Slurm(partition="all"))["slurm_partition"] == "all"


def test_a_node_is_shared_only_if_the_site_says_so():
    assert job_resources(ONE_NODE, BOX)["slurm_extra"] == "--exclusive"
    shared = Slurm(exclusive=False, extra="--reservation=mine")
    alone = "--dependency=singleton --reservation=mine"
    assert job_resources(ONE_NODE, shared)["slurm_extra"] == alone, "our own jobs take turns before they hold a node"


def test_modules_and_scratch_precede_the_block_and_are_quoted():
    prepared = before_block(Slurm(modules=("cuda/12.4", "a b"), scratch="/local/me"))
    assert prepared.endswith(
        'module load cuda/12.4 && module load \'a b\' && mkdir -p "/local/me" && export TMPDIR="/local/me" && '
    )


@pytest.mark.parametrize(
    ("scratch", "folder"),
    [
        ("HERE/$ME-$SLURM_JOB_ID", "me-7"),
        ("HERE/${ME}x", "mex"),
        ("HERE/a b", "a b"),
        ("HERE/$(touch hacked)`touch hacked`", "$(touch hacked)`touch hacked`"),
        ('HERE/"; touch hacked; "', '"; touch hacked; "'),
        ("HERE/back\\\\slash$", "back\\\\slash$"),
    ],
)
def test_only_variables_in_scratch_are_expanded_by_the_shell_on_the_node(tmp_path, scratch, folder):
    """A folder of the job is removed with it; any other may hold files of others."""
    prepared = before_block(Slurm(scratch=scratch.replace("HERE", str(tmp_path))))
    command = ["bash", "-c", f'{prepared}printf %s "$TMPDIR"']
    variables = {"ME": "me", "SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]}
    told = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told == f"{tmp_path}/{folder}"
    del variables["SLURM_JOB_ID"]
    without = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, check=False)
    assert (without.returncode == 0) == ("JOB_ID" not in scratch), "or the folder above it would be removed"
    left = [path.name for path in tmp_path.iterdir()]
    assert left == ([] if "JOB_ID" in scratch else [folder])


def test_blocks_start_in_the_sites_container():
    assert python(Slurm(), "/my venv/python") == "'/my venv/python'"
    assert python(Slurm(container="apptainer exec --nv image.sif"), "/venv/python") == (
        "apptainer exec --nv image.sif python3"
    )


def test_a_block_of_several_nodes_keeps_a_process_outside_the_container():
    contained = Slurm(container="apptainer exec --nv image.sif", container_python="/opt/my env/python")
    assert python(contained, "/my venv/python", nodes=2) == (
        "'/my venv/python' -P -m accelsweep.executor.srun apptainer exec --nv image.sif '/opt/my env/python'"
    )
    assert python(Slurm(), "/venv/python", nodes=2) == "/venv/python"


def test_the_interface_between_nodes_is_exported():
    assert "export ACCELSWEEP_INTERFACE=ib0 && " in before_block(Slurm(interface="ib0"))


def test_the_printed_options_can_be_pasted_into_a_shell():
    options = sbatch_options(Resources(), Slurm(constraint="a&b; touch x", account="mine", extra="--comment='a b'"))
    assert "'--constraint=a&b; touch x'" in options
    assert "--account=mine" in shlex.split(options)
    assert "--comment=a b" in shlex.split(options)


def test_a_job_is_described_in_words():
    assert in_words(ONE_NODE, BOX) == (
        "1 node, 8 CPUs per node, 4 GPUs (h100), 64000 MB, at most 24 minutes, partition gpu"
    )

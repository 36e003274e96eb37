"""Which environment variables a scheduler's commands and jobs get."""

from pathlib import Path

import pytest

from accelsweep.schedulers import protocol
from accelsweep.schedulers.job_environment import (
    KEPT_THREADS_VARIABLE,
    for_commands,
    for_jobs,
    kept_threads,
    restore_threads,
    withheld_variables,
    without_options,
)

HARMLESS = {
    "PATH": "/bin",
    "TOKENIZERS_PARALLELISM": "false",
    "SSH_AUTH_SOCK": "/tmp/s",
    "MLFLOW_TRACKING_URI": "http://h",
}
SECRETS = {
    **dict.fromkeys(("MLFLOW_TRACKING_PASSWORD", "HF_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"), "x"),
    **dict.fromkeys(("WANDB_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "ACCELSWEEP_NOTIFY"), "x"),
    "STORE": "postgresql://me:pass@host/db",
}


def test_jobs_get_only_the_secrets_that_the_site_lists() -> None:
    assert for_jobs(HARMLESS | SECRETS) == HARMLESS
    assert for_jobs(HARMLESS | SECRETS, ["HF_TOKEN", "STORE"]) == HARMLESS | {
        "HF_TOKEN": "x",
        "STORE": SECRETS["STORE"],
    }


def test_variables_that_snakemake_and_slurm_read_options_from_are_removed() -> None:
    ours = {"SLURM_CONF": "/etc/here", "ACCELSWEEP_LEASES": "/tmp/x", "CUDA_VISIBLE_DEVICES": "0"}
    options = (
        *("SNAKEMAKE_PROFILE", "SNAKEMAKE_SLURM_PARTITIONS", "SBATCH_WAIT", "SBATCH_EXPORT", "SBATCH_PARTITION"),
        *("SQUEUE_FORMAT2", "SQUEUE_STATES", "SACCT_FEDERATION", "SINFO_PARTITION", "SCANCEL_INTERACTIVE"),
        *("SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_LABELIO", "SRUN_CPUS_PER_TASK", "SALLOC_ACCOUNT"),
        *("SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT"),  # of a job that we are in
    )
    assert without_options(ours | dict.fromkeys(options, "1")) == ours
    assert for_commands(ours | {"SLURM_TIME_FORMAT": "relative"}) == ours | {"SLURM_TIME_FORMAT": "standard"}


@pytest.mark.parametrize("function", ["ask", "answered"])
def test_slurms_commands_run_without_the_users_defaults(function: str, tmp_path: Path, monkeypatch) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\nenv")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in {"SQUEUE_STATES": "PENDING", "SLURM_TIME_FORMAT": "relative", "SBATCH_QOS": "low"}.items():
        monkeypatch.setenv(name, value)
    output = str(getattr(protocol, function)("squeue"))
    assert "SQUEUE_" not in output
    assert "SBATCH_" not in output
    assert "SLURM_TIME_FORMAT=standard" in output
    assert protocol.ask("squeue", environment={"TZ": "UTC"}).count("TZ=UTC") == 1


def test_withheld_variables_are_named_with_the_key_that_passes_them_on() -> None:
    notes = withheld_variables({"HF_TOKEN": "x", "SBATCH_ACCOUNT": "mine", "PATH": "/bin"}, [])
    assert notes == [
        "jobs do not receive HF_TOKEN; if they need one, list it in site.slurm.secrets",
        "sbatch does not receive SBATCH_ACCOUNT: use the site file (site.slurm, such as account: "
        "${oc.env:SBATCH_ACCOUNT})",
    ]
    assert withheld_variables({"HF_TOKEN": "x"}, ["HF_TOKEN"]) == []


def test_a_jobs_single_thread_gives_way_to_what_the_user_has_set_or_left_alone() -> None:
    users = {"PATH": "/bin", "MKL_NUM_THREADS": "3"}
    job = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "8", "PATH": "/bin"}
    job[KEPT_THREADS_VARIABLE] = kept_threads(users)
    restore_threads(job)
    del job[KEPT_THREADS_VARIABLE]
    assert job == {"PATH": "/bin", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "8"}, "a site's own value stays"


def test_an_executor_that_no_sweep_has_started_keeps_its_threads() -> None:
    variables = {"OMP_NUM_THREADS": "1"}
    restore_threads(variables)
    assert variables == {"OMP_NUM_THREADS": "1"}

"""What an engine's commands and its jobs get of the user's variables, and what not."""

from pathlib import Path

import pytest

from accelsweep.schedulers import protocol as asking
from accelsweep.schedulers.job_environment import for_commands, for_jobs, not_handed_on, undisturbed

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


def test_no_secret_goes_to_jobs_but_those_that_the_site_lists() -> None:
    assert for_jobs(HARMLESS | SECRETS) == HARMLESS
    assert for_jobs(HARMLESS | SECRETS, ["HF_TOKEN", "STORE"]) == HARMLESS | {
        "HF_TOKEN": "x",
        "STORE": SECRETS["STORE"],
    }


def test_nothing_in_the_surroundings_gives_snakemake_or_slurm_an_order() -> None:
    ours = {"SLURM_CONF": "/etc/here", "ACCELSWEEP_LEASES": "/tmp/x", "CUDA_VISIBLE_DEVICES": "0"}
    orders = (
        *("SNAKEMAKE_PROFILE", "SNAKEMAKE_SLURM_PARTITIONS", "SBATCH_WAIT", "SBATCH_EXPORT", "SBATCH_PARTITION"),
        *("SQUEUE_FORMAT2", "SQUEUE_STATES", "SACCT_FEDERATION", "SINFO_PARTITION", "SCANCEL_INTERACTIVE"),
        *("SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_LABELIO", "SRUN_CPUS_PER_TASK", "SALLOC_ACCOUNT"),
        *("SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT"),  # of a job that we are in
    )
    assert undisturbed(ours | dict.fromkeys(orders, "1")) == ours
    assert for_commands(ours | {"SLURM_TIME_FORMAT": "relative"}) == ours | {"SLURM_TIME_FORMAT": "standard"}


@pytest.mark.parametrize("question", ["ask", "answered"])
def test_a_command_of_slurm_is_asked_without_the_users_defaults(question: str, tmp_path: Path, monkeypatch) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\nenv")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in {"SQUEUE_STATES": "PENDING", "SLURM_TIME_FORMAT": "relative", "SBATCH_QOS": "low"}.items():
        monkeypatch.setenv(name, value)
    told = str(getattr(asking, question)("squeue"))
    assert "SQUEUE_" not in told
    assert "SBATCH_" not in told
    assert "SLURM_TIME_FORMAT=standard" in told
    assert asking.ask("squeue", environment={"TZ": "UTC"}).count("TZ=UTC") == 1


def test_a_plan_says_what_jobs_and_sbatch_do_not_get_and_the_key_for_it() -> None:
    told = not_handed_on({"HF_TOKEN": "x", "SBATCH_ACCOUNT": "mine", "PATH": "/bin"}, [])
    assert told == [
        "jobs do not get HF_TOKEN; if they need one, list it in site.slurm.secrets",
        "sbatch does not get SBATCH_ACCOUNT: the site file decides (site.slurm, such as account: "
        "${oc.env:SBATCH_ACCOUNT})",
    ]
    assert not_handed_on({"HF_TOKEN": "x"}, ["HF_TOKEN"]) == []

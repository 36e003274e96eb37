"""The variables of our surroundings that Snakemake, the commands of an engine, and its jobs get, and those they do not.

Slurm's commands and Snakemake take orders from variables. Ours come from the site file, so others' are left out.
`sbatch --export=ALL` and `qsub -V` hand all variables to the engine, which stores them and shows them to its staff,
and Grid Engine to everybody. So secrets stay behind, unless the site lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from accelsweep.redaction import is_secret_name, masked

_ORDERS = re.compile(
    r"(SNAKEMAKE|SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SACCTMGR|SINFO|SCANCEL|SCONTROL|SPRIO|SSHARE|SSTAT)_\w+"
)

_CONNECTION = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_DEBUG_FLAGS"})
"""Where Slurm is, and who we are to it."""

_NOTIFY = "ACCELSWEEP_NOTIFY"
"""Its addresses hold secrets in every part."""

_READABLE = {"SLURM_TIME_FORMAT": "standard"}
"""What we read of Slurm's answers depends on it."""


def undisturbed(variables: Mapping[str, str]) -> dict[str, str]:
    """Return these variables without those by which Snakemake and Slurm's commands take orders.

    What Slurm says of a job that we are in goes, too: a job that is submitted with it is neither sized nor counted like
    ours.
    """
    return {name: value for name, value in variables.items() if name in _CONNECTION or not _ORDERS.fullmatch(name)}


def for_commands(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for an engine's command whose answer we read."""
    return undisturbed(variables) | _READABLE


def for_jobs(variables: Mapping[str, str], listed: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that may go to jobs, where the site lists these names of secrets that its jobs need."""
    secret = set(secrets_in(variables, listed))
    return {name: value for name, value in undisturbed(variables).items() if name not in secret}


def secrets_in(variables: Mapping[str, str], listed: Iterable[str] = ()) -> list[str]:
    """Return the names of variables that tell of a secret by their name or by an address, and that are not `listed`."""
    kept = set(listed)
    secret = (name == _NOTIFY or is_secret_name(name) or masked(value) != value for name, value in variables.items())
    return sorted(name for name, is_one in zip(variables, secret, strict=True) if is_one and name not in kept)


_OF_SBATCH = re.compile(r"SBATCH_\w+")


def not_handed_on(variables: Mapping[str, str], listed: Iterable[str]) -> list[str]:
    """Return sentences on variables that a user may expect Slurm's jobs, or sbatch, to get, and that they do not."""
    told = []
    if secret := secrets_in(variables, listed):
        told.append(f"jobs do not get {', '.join(secret)}; if they need one, list it in site.slurm.secrets")
    if orders := sorted(name for name in variables if _OF_SBATCH.fullmatch(name)):
        example = f"account: ${{oc.env:{orders[0]}}}" if orders[0] == "SBATCH_ACCOUNT" else "account, partition, extra"
        told.append(f"sbatch does not get {', '.join(orders)}: the site file decides (site.slurm, such as {example})")
    return told

"""Selects the environment variables to pass to Snakemake, a scheduler's commands and its jobs.

Slurm's commands and Snakemake read options from environment variables. Our options come from the site file, so these
variables are dropped. A scheduler that copies all variables into a job (`sbatch --export=ALL`) exposes them to its
administrators, or to all users. Secrets are therefore dropped as well, unless the site lists them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, MutableMapping

from accelsweep.redaction import is_secret_name, masked

_OPTIONS = re.compile(
    r"(SNAKEMAKE|SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SACCTMGR|SINFO|SCANCEL|SCONTROL|SPRIO|SSHARE|SSTAT)_\w+"
)

_CONNECTION = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_DEBUG_FLAGS"})
"""Variables that locate Slurm and authenticate the user."""


KEPT_THREADS_VARIABLE = "ACCELSWEEP_KEPT_THREADS"
"""The variable that passes the user's own values of `_THREAD_VARIABLES` to a job, as JSON."""

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables that Snakemake sets to the number of a job's threads, which is 1 (snakemake/shell.py)."""


def kept_threads(variables: Mapping[str, str]) -> str:
    """Return the value of `KEPT_THREADS_VARIABLE` for a user's variables."""
    return json.dumps({name: variables[name] for name in _THREAD_VARIABLES if name in variables})


def restore_threads(variables: MutableMapping[str, str]) -> None:
    """Undo what Snakemake did to a job's variables, or else whatever reads one of them would use a single thread.

    A variable with another value than Snakemake's was set while preparing the job, and is kept.
    """
    if KEPT_THREADS_VARIABLE not in variables:
        return
    kept = json.loads(variables[KEPT_THREADS_VARIABLE])
    for name in _THREAD_VARIABLES:
        if variables.get(name) == "1":
            del variables[name]
            variables.update({name: kept[name]} if name in kept else {})


def without_options(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables except those from which Snakemake and Slurm's commands read options.

    The variables of the current job are dropped as well, because they would change the size of jobs submitted from it.
    """
    return {name: value for name, value in variables.items() if name in _CONNECTION or not _OPTIONS.fullmatch(name)}


def for_commands(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a scheduler's command whose output we parse."""
    return without_options(variables) | {"SLURM_TIME_FORMAT": "standard"}


def for_jobs(variables: Mapping[str, str], listed: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that jobs may receive; `listed` contains the names of secrets that the site passes on."""
    secret = set(secrets_in(variables, listed))
    return {name: value for name, value in without_options(variables).items() if name not in secret}


def secrets_in(variables: Mapping[str, str], listed: Iterable[str] = ()) -> list[str]:
    """Return the names of variables, except those `listed`, whose name or value looks like a secret.

    ACCELSWEEP_NOTIFY is treated as a secret, because any part of its URLs may be secret.
    """
    allowed = set(listed)
    return sorted(
        name
        for name, value in variables.items()
        if name not in allowed and (name == "ACCELSWEEP_NOTIFY" or is_secret_name(name) or masked(value) != value)
    )


def withheld_variables(variables: Mapping[str, str], listed: Iterable[str]) -> list[str]:
    """Return notes about withheld variables that a user may expect to be passed to Slurm's jobs or sbatch."""
    notes = []
    if secret := secrets_in(variables, listed):
        notes.append(f"jobs do not receive {', '.join(secret)}; if they need one, list it in site.slurm.secrets")
    if options := sorted(name for name in variables if re.fullmatch(r"SBATCH_\w+", name)):
        example = (
            f"account: ${{oc.env:{options[0]}}}" if options[0] == "SBATCH_ACCOUNT" else "account, partition, extra"
        )
        notes.append(f"sbatch does not receive {', '.join(options)}: use the site file (site.slurm, such as {example})")
    return notes

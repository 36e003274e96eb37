"""The preparation of a node for a block, in shell commands that every engine's jobs begin with."""

from __future__ import annotations

import re
import shlex

from accelsweep.core.sites.jobs import JobSettings

INTERFACE_VARIABLE = "ACCELSWEEP_INTERFACE"
"""Names the network interface between nodes, for runs of several."""

SCRATCH_VARIABLE = "ACCELSWEEP_SCRATCH"
"""Names the scratch folder of one job, which ends with it: one whose name holds the job's number."""


def prepared(settings: JobSettings, job_id: str) -> list[str]:
    """Return the commands for modules, network and scratch folder; the variable `job_id` holds the job's number."""
    commands = [f"module load {shlex.quote(module)}" for module in settings.modules]
    if settings.interface:
        commands.append(f"export {INTERFACE_VARIABLE}={shlex.quote(settings.interface)}")
    if settings.scratch:
        folder = _with_variables(settings.scratch)
        commands += [f"mkdir -p {folder}", f"export TMPDIR={folder}"]
        if re.search(rf"\$({job_id}(?![A-Za-z0-9_])|\{{{job_id}\}})", settings.scratch):
            own = f'"${SCRATCH_VARIABLE}"'
            commands.insert(0, f': "${{{job_id}:?}}"')  # without a number the name would be that of another folder
            commands += [f"export {SCRATCH_VARIABLE}={folder}", f"trap 'rm -rf -- {own}' EXIT"]
    return commands


def _with_variables(text: str) -> str:
    """Return `text` as one shell word in which only `$NAME` and `${NAME}` are expanded, on the node."""
    return '"' + _SPECIAL.sub(r"\\\g<0>", text) + '"'


_SPECIAL = re.compile(r'[\\"`]|\$(?![A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})')
"""Characters with a meaning between double quotes, variables apart."""


def python(settings: JobSettings, own: str, nodes: int = 1) -> str:
    """Return the shell words that start Python for a block: our `own` interpreter, or the one inside the container.

    A block of several `nodes` leaves a process of ours outside the container, because srun is there.
    """
    if settings.container is None:
        return shlex.quote(own)
    inside = f"{settings.container} {shlex.quote(settings.container_python)}"
    return inside if nodes == 1 else f"{shlex.quote(own)} -P -m accelsweep.supervise.processes.outside {inside}"

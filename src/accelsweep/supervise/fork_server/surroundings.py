"""The inheritance of a process from its starter. A fork server answers only those who have what it has itself."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from accelsweep.machine.cgroup import MEMBERSHIP
from accelsweep.machine.cpu import allowed_cores

_FREE = re.compile(
    r"(ACCELSWEEP|MLFLOW|SNAKEMAKE)_.*|PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|TMP|TEMP|TMPDIR|TEMPDIR|PYTHONSAFEPATH"
)
"""The variables that no library heeds when it is imported, or that the interpreter's flags show: they may differ."""

Inherited = dict[str, str]


def surroundings() -> Inherited:
    """Return what this process inherited and what libraries may have heeded at their import, by its name in words."""
    variables = {f"variable {name}": value for name, value in os.environ.items() if not _FREE.fullmatch(name)}
    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        **variables,
        **{name: str(resource.getrlimit(number)) for name, number in limits.items()},
        "interpreter": f"{sys.executable} {sys.version} {sys.flags}",
        "user": f"{os.getuid()} {os.getgid()} {sorted(os.getgroups())}",
        "cores": str(sorted(allowed_cores())),
        "priority": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "control group": MEMBERSHIP.read_text(),
        "umask": re.findall(r"^Umask:.*$", Path("/proc/self/status").read_text(), re.MULTILINE)[0],
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the names of what is not the same in both."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))

"""The variables that a job gets. `qstat -j` shows them to every user of the cluster, so secrets stay behind."""

from __future__ import annotations

from collections.abc import Mapping

from accelsweep.base.secrets import masked, names_a_secret

_NOTIFY = "ACCELSWEEP_NOTIFY"
"""Its addresses hold secrets in every part."""


def open_to_all(variables: Mapping[str, str]) -> dict[str, str]:
    """Return these variables without those whose name tells of a secret, or whose address holds one."""
    return {
        name: value
        for name, value in variables.items()
        if name != _NOTIFY and not names_a_secret(name) and masked(value) == value
    }

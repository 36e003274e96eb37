"""The variables that a job gets. `qstat -j` shows them to every user of the cluster, so secrets stay behind."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accelsweep.base.secrets import masked

_SECRET = re.compile(
    r"PASSWO?R?D|PASSPHRASE|SECRET|TOKEN$|(API|ACCESS|PRIVATE)_?KEY$|^ACCELSWEEP_NOTIFY$", re.IGNORECASE
)


def open_to_all(variables: Mapping[str, str]) -> dict[str, str]:
    """Return these variables without those whose name tells of a secret, or whose address holds one."""
    return {name: value for name, value in variables.items() if not _SECRET.search(name) and masked(value) == value}

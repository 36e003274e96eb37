"""The names that a plan gives, and what they become where several sweeps are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from accelsweep.base.documents import sha256_text

BLOCK_NAME = "b[0-9a-f]{12}"
"""Every block's name, which a digest of its contents follows."""

LONGEST = 120
"""A folder of more characters than this would not fit every file system."""


class MergedName(NamedTuple):
    """The name of a run or a block beside those of other sweeps: `SWEEP/NAME`, so that nothing pairs across sweeps.

    `sweep` is empty in the names of a sweep that stands alone. Neither part can hold a `/`.
    """

    sweep: str
    name: str

    @classmethod
    def of(cls, text: str) -> MergedName:
        """Return the parts of a name in the findings of one sweep or of several."""
        sweep, _, name = text.rpartition("/")
        return cls(sweep, name)

    def __str__(self) -> str:
        """Return the name as findings have it."""
        return f"{self.sweep}/{self.name}" if self.sweep else self.name


def name_together(sweeps: Sequence[str]) -> str:
    """Return the name of several sweeps, `A+B`; no sweep's own name can hold a `+`.

    Of a longer name than `LONGEST` it is the first sweep, how many more there are, and a digest of all.
    """
    name = "+".join(sweeps)
    if len(name) <= LONGEST:
        return name
    return f"{sweeps[0]}+{len(sweeps) - 1}-more-{sha256_text(name)[:8]}"

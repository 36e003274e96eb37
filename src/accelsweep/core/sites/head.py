"""The job of a head that was handed over to a cluster."""

from __future__ import annotations

from accelsweep.json_documents import AtLeast1, Frozen, JobMemory


class DetachedHead(Frozen):
    """The job that a head gets by `--detach`: its partition, its time limit, and its memory."""

    partition: str | None = None
    minutes: AtLeast1 | None = None
    mem_mb: JobMemory | None = None

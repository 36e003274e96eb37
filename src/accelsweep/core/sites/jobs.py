"""The words on a site's jobs for every engine: their size, their limits, and how a node is prepared for a block."""

from __future__ import annotations

from pydantic import ConfigDict

from accelsweep.base.bounds import AtLeast0, AtLeast1, JobMemory
from accelsweep.base.documents import Frozen


class JobSettings(Frozen):
    """The form in which blocks become jobs, on any engine. Where a value is None, the cluster's default holds.

    `gpu_model` is the cluster's name of the GPU type. `mem_mb` is per node. `max_minutes` bounds a job's time limit,
    `max_gpus` the GPUs that the sweep keeps from others at once, `max_jobs` its jobs in the queue. `scratch` is a
    node-local folder that becomes TMPDIR. `modules` are loaded before a block. `container` is the command that starts a
    program in the blocks' container, and `container_python` the Python in it. `interface` is the network interface
    between nodes. `exclusive` keeps other jobs off the nodes of a block, and `extra` is handed to the command that
    submits. `fake_gpus` is for tests alone: a CPU cell asks for so many GPUs per node and uses none of them.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    gpu_model: str | None = None
    cpus_per_gpu: AtLeast1 = 1
    mem_mb: JobMemory | None = None
    max_minutes: AtLeast1 | None = None
    max_gpus: AtLeast1 | None = None
    max_jobs: AtLeast1 | None = None
    scratch: str | None = None
    modules: tuple[str, ...] = ()
    container: str | None = None
    container_python: str = "python3"
    interface: str | None = None
    exclusive: bool = True
    extra: str | None = None
    fake_gpus: AtLeast0 = 0

    @property
    def cpu_apart(self) -> bool:
        """Whether jobs without GPUs go to nodes of their own."""
        return False

"""The words of a site on its jobs, as Grid Engine has them."""

from __future__ import annotations

from accelsweep.core.sites.jobs import JobSettings


class GridEngine(JobSettings):
    """The form in which blocks become Grid Engine jobs at a site.

    `queue` takes every block, or those with GPUs where `cpu_queue` takes the others. `parallel_environment` grants
    slots of one node. `memory_resource` is asked for with `mem_mb`, divided by the slots. `gpu_resource` counts GPUs of
    a job, and `gpu_model_resource` names their type.
    """

    queue: str | None = None
    cpu_queue: str | None = None
    project: str | None = None
    parallel_environment: str = "smp"
    memory_resource: str = "h_vmem"
    gpu_resource: str = "gpu"
    gpu_model_resource: str = "gpu_type"

    @property
    def cpu_apart(self) -> bool:
        """Whether jobs without GPUs go to another queue."""
        return self.cpu_queue is not None

"""The metrics of a run's job, from the cluster's accounting."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "job_queue_seconds": MetricInfo(
        "s", "Time that the run's Slurm job waited from submission to start, all starts together.", "Wait in the queue"
    ),
    "job_elapsed_seconds": MetricInfo("s", "Time that the whole job ran, with all its runs and what is between them."),
    "job_energy_joules": MetricInfo(
        "J",
        "`ConsumedEnergy` of the whole job on all its nodes; never to be mixed with the window's `energy_joules`.",
        "Energy of the whole job",
    ),
    "time_to_result_seconds": MetricInfo(
        "s", "`time_to_target_wall_seconds`, or one pass over the data at the rate where no target is trained to."
    ),
    "time_to_result_with_queue_seconds": MetricInfo("s", "The same time after `job_queue_seconds`."),
}

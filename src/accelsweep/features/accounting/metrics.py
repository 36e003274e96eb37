"""Metrics of the job that contained a run, taken from the cluster's accounting data."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "job_queue_seconds": MetricInfo(
        "s", "Queue time of the run's Slurm job, from submission to start, summed over all starts.", "Wait in the queue"
    ),
    "job_elapsed_seconds": MetricInfo("s", "Run time of the whole job: all its runs and the time between them."),
    "job_energy_joules": MetricInfo(
        "J",
        "`ConsumedEnergy` of the whole job on all its nodes; not comparable with the window's `energy_joules`.",
        "Energy of the whole job",
    ),
    "time_to_result_seconds": MetricInfo(
        "s", "`time_to_target_wall_seconds` or, without a target, the time of one epoch at the measured rate."
    ),
    "time_to_result_with_queue_seconds": MetricInfo("s", "`time_to_result_seconds` plus `job_queue_seconds`."),
}

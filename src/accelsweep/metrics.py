"""Every metric that a record may hold: its unit and its meaning. The documentation's table is made from `metrics()`.

A record's own `unit`, `scope` and `provenance` say how one number came about. `logged.NAME` is not listed: these are
the values that the user's module logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from accelsweep import registry
from accelsweep.plain_json import NO_OTHER_FIELDS


@dataclass(frozen=True)
class Metric:
    """One measured number with its unit, or the reason why there is none. Never 0 for "unknown".

    `scope` names the part that the number covers (`GPU board`, `CPU package`, `process group`), `provenance` its source
    (`counter`, `integrated`, `modelled`, `clock`, `device events`).
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    value: float | None
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None

    def __post_init__(self) -> None:
        """Refuse a metric with neither a value nor a reason, or with both."""
        if (self.value is None) == (self.reason is None):
            raise ValueError("a metric has either a value or the reason why it has none")


class MetricInfo(NamedTuple):
    """A metric's unit, and one sentence about it. The unit `per config` is the name in `measure.quality_metric`.

    With a `title` the report lists it among the readings of a setting, and says why if no setting has it.
    """

    unit: str
    description: str
    title: str | None = None


_PER_CONFIG = "per config"

_CORE: dict[str, MetricInfo] = {
    # the timed window
    "samples_per_second": MetricInfo("1/s", "The rate: samples of all ranks over the seconds of the slowest rank."),
    "step_seconds": MetricInfo("s", "Mean time of a step in the window, on the slowest rank."),
    "step_seconds_p50": MetricInfo("s", "Median time of a step in the window, on rank 0."),
    "step_seconds_p99": MetricInfo("s", "99th percentile of the steps' times; withheld below 1000 steps."),
    "samples_per_second_without_stalls": MetricInfo(
        "1/s", "The rate that the window has without its stalls; absent where it has none."
    ),
    "stall_seconds": MetricInfo(
        "s", "Time that steps far longer than the others took beyond a usual step, on the worst rank; 0 without any."
    ),
    "window_seconds": MetricInfo("s", "Length of the window, on the slowest rank."),
    "window_steps": MetricInfo("steps", "Steps of the window, on one rank."),
    "window_samples": MetricInfo("samples", "Samples of the window, on all ranks."),
    "rank_skew_seconds": MetricInfo("s", "Seconds of the slowest rank less those of the fastest; absent on one rank."),
    "epoch_ends_in_window": MetricInfo("epochs", "Passes over the data that ended inside the window."),
    "epoch_samples": MetricInfo("samples", "Samples that one pass over the training data gives, on all ranks."),
    "foreign_cpu_cores": MetricInfo("cores", "CPU cores that other processes kept busy during the window."),
    # cold costs
    "load_seconds": MetricInfo("s", "Time to build module, data and device; imports are excluded."),
    "first_step_seconds": MetricInfo("s", "Time of the first step, compilation included; it is not in the rate."),
    # training
    "final_train_loss": MetricInfo("loss", "Training loss of the window's last step, on rank 0."),
    "learning_rate": MetricInfo("1", "Learning rate in force at the end of the window, first parameter group."),
    "loss_scale": MetricInfo("1", "Loss scale after the window, in 16-mixed only."),
    "skipped_steps": MetricInfo("steps", "Optimiser steps that the loss scale skipped, in 16-mixed only."),
    # quality and time to accuracy
    "quality": MetricInfo(
        _PER_CONFIG, "`measure.quality_metric` on the validation set, after a fixed number of samples."
    ),
    "quality_seconds": MetricInfo("s", "Time of the quality phase, or of all validations of a time to accuracy."),
    "best_quality": MetricInfo(_PER_CONFIG, "Best value of all validations on the way to the target."),
    "time_to_target_seconds": MetricInfo("s", "Training time until the target was reached; validation is excluded."),
    "time_to_target_wall_seconds": MetricInfo("s", "The same time with the validations in it."),
    "results_per_hour": MetricInfo("results/h", "3600 over `time_to_target_seconds`."),
    "samples_to_target": MetricInfo("samples", "Training samples until the target was reached, on all ranks."),
    "validations": MetricInfo("validations", "Validations on the way to the target."),
    # inference
    "query_seconds_p50": MetricInfo("s", "Median time of a query, from 20 queries on.", "Median latency"),
    "query_seconds_p90": MetricInfo("s", "90th percentile of the queries' times; from 100 queries on.", "p90 latency"),
    "query_seconds_p99": MetricInfo("s", "99th percentile of the queries' times; from 1000 queries on.", "p99 latency"),
    # the memory frontier
    "largest_batch": MetricInfo("samples", "Largest batch of a rank whose training fits into the memory, by tries."),
    "too_large_batch": MetricInfo(
        "samples", "Smallest batch tried that does not fit; absent where none was too large."
    ),
    "bytes_per_sample": MetricInfo(
        "B", "What each further sample of a batch takes, from a line through the tries' peaks."
    ),
    "fixed_bytes": MetricInfo("B", "What a batch of none would take: parameters, gradients, the optimiser's state."),
    "memory_limit_bytes": MetricInfo(
        "B", "What a rank could take, `measure.headroom` left free; its scope names the limit."
    ),
    "peak_rank_bytes": MetricInfo("B", "Peak of the fullest rank with the largest batch that fits."),
    # memory and energy
    "peak_memory_reserved_bytes": MetricInfo("B", "Peak of the memory that torch reserved on the fullest device."),
    "peak_memory_allocated_bytes": MetricInfo("B", "Peak of torch's allocator on the fullest device."),
    "device_memory_used_bytes": MetricInfo("B", "Memory in use on the fullest device, other processes included."),
    "rank_parameter_bytes": MetricInfo(
        "B", "Parameters that the fullest rank keeps between steps; under FSDP its shard of them."
    ),
    "host_pss_bytes": MetricInfo("B", "Proportional set size of all ranks when the window closed; no peak."),
    "energy_joules": MetricInfo("J", "Energy of the window by a counter; its scope says of which parts."),
    "host_energy_joules": MetricInfo("J", "Energy of the CPU packages during a GPU's window, by RAPL."),
    # operations
    "parameters": MetricInfo("parameters", "Parameters of the model, counted."),
    "model_flops_per_sample": MetricInfo("FLOP", "Operations of one sample's training step, or answer; counted."),
    "model_flops_per_second": MetricInfo("FLOP/s", "Those operations times the rate."),
    "matmul_ceiling_flops_per_second": MetricInfo(
        "FLOP/s", "Fastest matrix product measured on this device, in this format."
    ),
    "mfu": MetricInfo("1", "`model_flops_per_second` over the measured ceiling of all devices."),
    "mfu_of_datasheet": MetricInfo("1", "`model_flops_per_second` over the datasheet's dense peak of all devices."),
    "matmul_time_share": MetricInfo(
        "1", "Share of a step's time in matrix products, convolutions and recurrent layers; from a profiled pass."
    ),
    # the probe pass
    "data_wait_share": MetricInfo("1", "Share of a step that waits for data."),
    "host_to_device_share": MetricInfo("1", "Share of a step that copies the batch to the device."),
    "forward_share": MetricInfo("1", "Share of a step in the forward pass."),
    "backward_share": MetricInfo("1", "Share of a step in the backward pass."),
    "optimizer_share": MetricInfo("1", "Share of a step in the optimiser."),
    "communication_share": MetricInfo("1", "Share of a step that the exchange of gradients makes longer."),
    "overhead_share": MetricInfo("1", "Share of a step in the loop itself, between the other parts."),
    "device_behind_share": MetricInfo("1", "Share of steps at whose end the device was still behind the host."),
}
"""Name -> meaning, in the order of the documentation's table; those of features follow."""


@cache
def metrics() -> Mapping[str, MetricInfo]:
    """Return all metrics by name: the core's, then those of features, which may also describe one of the core's."""
    found = dict(_CORE)
    for described in registry.loaded("metrics"):
        found |= described
    return found


def rate_unit(rate: str) -> str:
    """Return the unit of a rate that settings are compared by; empty for an unknown one."""
    return metrics()[rate].unit if rate in metrics() else ""


NOT_REACHED = "the run ended before this was measured"
"""The reason of a metric that belongs to a later phase of a run, until that phase is over."""


def not_reached(names: Iterable[str], quality: str | None = None) -> dict[str, Metric]:
    """Return the metrics with these names, each without a value for the reason `NOT_REACHED`.

    `quality` is the unit of those whose unit the config decides.
    """
    units = {name: (_CORE.get(name) or metrics()[name]).unit for name in names}
    return {
        name: Metric(value=None, unit=quality or "quality" if unit == _PER_CONFIG else unit, reason=NOT_REACHED)
        for name, unit in units.items()
    }


UNTIMED = frozenset({"quality", "samples_to_target"})
"""Metrics that other work on the machine cannot change: the seed decides them, and no clock."""

MEMORY_METRICS = (
    "peak_memory_reserved_bytes",
    "peak_memory_allocated_bytes",
    "device_memory_used_bytes",
    "host_pss_bytes",
)
"""Memory metrics in order of preference. A setting uses its first; a comparison the first that all settings have."""

MLPERF_LOG_MARK = ":::MLLOG "
"""The beginning of each line of a log that MLPerf's own code wrote; the rest is JSON."""

"""All metrics that a record may contain, with units and descriptions. The documentation's table is generated from them.

The `unit`, `scope` and `provenance` in a record describe how a number was obtained. Values logged by the user's module
(`logged.NAME`) are not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from accelsweep import registry
from accelsweep.plain_json import NO_OTHER_FIELDS


@dataclass(frozen=True, slots=True)  # slots: there are many instances
class Metric:
    """A measured number with its unit. If the number is unknown, the value is None, never 0, and the reason is stored.

    `scope` describes what the number covers (`GPU board`, `CPU package`, `process group`), and `provenance` its source
    (`counter`, `integrated`, `modelled`, `clock`, `device events`).
    """

    __pydantic_config__ = NO_OTHER_FIELDS

    value: float | None
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None

    def __post_init__(self) -> None:
        """Require either a value or a reason."""
        if (self.value is None) == (self.reason is None):
            raise ValueError("a metric has either a value or the reason why it has none")


class MetricInfo(NamedTuple):
    """A metric's unit and one-sentence description.

    The unit `per config` means the unit of `measure.quality_metric`. Metrics with a `title` are listed in
    the report's table of readings per setting.
    """

    unit: str
    description: str
    title: str | None = None


_PER_CONFIG = "per config"

SAMPLED: Mapping[str, tuple[str, str]] = {
    "gpu_utilisation": ("1", "the share of time in which a kernel was running, over all devices"),
    "gpu_memory_bytes": ("B", "the memory in use on each device"),
    "gpu_power_watts": ("W", "the power of each device"),
    "gpu_power_limit_watts": ("W", "the power limit of each device"),
    "gpu_power_capped": ("1", "the share of time for which each device was at its power limit"),
    "gpu_celsius": ("degC", "the temperature of each device"),
    "gpu_sm_mhz": ("MHz", "the clock of each device's processors"),
    "gpu_memory_mhz": ("MHz", "the clock of each device's memory"),
    "gpu_throttled": ("1", "the share of time for which each device was throttled for another reason, such as heat"),
    "gpu_foreign_processes": ("processes", "the number of processes other than ours that use each device"),
    "rank_cpu_cores": (
        "cores",
        "the CPU time per second of each rank's process (of a whole command, including its descendants)",
    ),
    "rank_rss_bytes": (
        "B",
        "the resident memory of each rank's process (of a whole command, including its descendants)",
    ),
    "host_cpu_cores": ("cores", "the CPU time of all processes on the machine per second"),
    "host_memory_bytes": ("B", "the memory in use on the machine"),
    "host_disk_bytes_per_second": ("B/s", "the rate at which the machine's disks read and wrote"),
    "host_network_bytes_per_second": ("B/s", "the rate at which the machine received and sent"),
    "package_power_watts": ("W", "the power of the CPU packages"),
}
"""What is sampled during a run -> its unit and description."""


def quantity_of(column: str) -> str:
    """Return a column's name without the number of its rank or device: `gpu_power_watts` for `gpu1_power_watts`."""
    prefix, _, rest = column.partition("_")
    return f"{prefix.rstrip('0123456789')}_{rest}"


STATISTICS = {"mean": "Mean", "p95": "95th percentile", "max": "Maximum"}
"""Suffixes of the metrics of sampled quantities -> words."""

_CORE: dict[str, MetricInfo] = {
    # the timed window
    "samples_per_second": MetricInfo("1/s", "The rate: samples across all ranks divided by the slowest rank's time."),
    "step_seconds": MetricInfo("s", "Mean step time in the window, on the slowest rank."),
    "step_seconds_p50": MetricInfo("s", "Median step time in the window, on rank 0."),
    "step_seconds_p99": MetricInfo("s", "99th percentile of the step times; withheld below 1000 steps."),
    "samples_per_second_without_stalls": MetricInfo("1/s", "The rate excluding stalls; absent if there were none."),
    "stall_seconds": MetricInfo("s", "Excess time of stalled steps, on the worst rank; 0 if there were none."),
    "pauses": MetricInfo("pauses", "Pauses of a script in the window, such as evaluations, which the rate excludes."),
    "pause_seconds": MetricInfo("s", "Total time of these pauses, less one usual step each."),
    "tokens_per_second": MetricInfo(
        "1/s", "The rate in tokens, if the tokens in a batch can be counted.", "Rate in tokens"
    ),
    "window_seconds": MetricInfo("s", "Length of the window, on the slowest rank."),
    "window_steps": MetricInfo("steps", "Steps in the window, per rank."),
    "window_samples": MetricInfo("samples", "Samples in the window, across all ranks."),
    "window_tokens": MetricInfo("tokens", "Tokens in the window, across all ranks."),
    "rank_skew_seconds": MetricInfo(
        "s", "Time by which the slowest rank lags behind the fastest; absent for one rank."
    ),
    "epoch_ends_in_window": MetricInfo("epochs", "Passes over the data that ended within the window."),
    "epoch_samples": MetricInfo("samples", "Samples in one pass over the training data, across all ranks."),
    "foreign_cpu_cores": MetricInfo("cores", "CPU cores kept busy by other processes during the window."),
    # cold costs
    "load_seconds": MetricInfo("s", "Time to set up the module, data and device, excluding imports."),
    "first_step_seconds": MetricInfo("s", "Time of the first step, including compilation; not part of the rate."),
    # what torch.compile and the memory layout did
    "compile_seconds": MetricInfo(
        "s",
        "Time that torch.compile took up to the end of the window; except for `recompilations`, not part of the rate.",
        "Compiling",
    ),
    "compiled_graphs": MetricInfo("graphs", "Graphs that torch.compile made up to the end of the window."),
    "graph_breaks": MetricInfo("breaks", "Places where torch.compile had to break a graph."),
    "recompilations": MetricInfo("graphs", "Graphs that were compiled within the window."),
    "channels_last_share": MetricInfo(
        "1", "Share of the convolutions' inputs in NHWC order, in the first step, for `channels_last`."
    ),
    # what the machine did during the window, in samples
    **{
        f"{quantity}_{statistic}": MetricInfo(unit, f"{words} of {what}, in samples during the window.")
        for quantity, (unit, what) in SAMPLED.items()
        for statistic, words in STATISTICS.items()
    },
    "sampler_cpu_cores": MetricInfo("cores", "CPU time of the sampler itself, per second after its first reading."),
    # training
    "final_train_loss": MetricInfo("loss", "Training loss of the window's last step, on rank 0."),
    "learning_rate": MetricInfo("1", "Learning rate of the first parameter group at the end of the window."),
    "loss_scale": MetricInfo("1", "Loss scale after the window, for 16-mixed only."),
    "skipped_steps": MetricInfo("steps", "Optimiser steps skipped by the loss scaler, for 16-mixed only."),
    # quality and time to accuracy
    "quality": MetricInfo(
        _PER_CONFIG, "`measure.quality_metric` in validation, after training on a fixed number of samples."
    ),
    "quality_seconds": MetricInfo(
        "s", "Time of the quality phase, or of all validations while training to the target."
    ),
    "best_quality": MetricInfo(_PER_CONFIG, "Best value across all validations while training to the target."),
    "time_to_target_seconds": MetricInfo("s", "Training time until the target was reached, excluding validation."),
    "time_to_target_wall_seconds": MetricInfo("s", "Time until the target was reached, including validation."),
    "results_per_hour": MetricInfo("results/h", "3600 divided by `time_to_target_seconds`."),
    "samples_to_target": MetricInfo("samples", "Training samples until the target was reached, across all ranks."),
    "validations": MetricInfo("validations", "Number of validations while training to the target."),
    # the whole process of a command
    "processes_per_hour": MetricInfo("processes/h", "3600 divided by `process_seconds`."),
    "process_seconds": MetricInfo(
        "s", "Time of the user's command, from its start to its exit, start-up included.", "Whole process"
    ),
    "process_cpu_seconds": MetricInfo(
        "s", "CPU time of the command and of the processes that it waited for.", "CPU time of the process"
    ),
    # inference
    "query_seconds_p50": MetricInfo("s", "Median query latency; requires at least 20 queries.", "Median latency"),
    "query_seconds_p90": MetricInfo(
        "s", "90th percentile of query latency; requires at least 100 queries.", "p90 latency"
    ),
    "query_seconds_p99": MetricInfo(
        "s", "99th percentile of query latency; requires at least 1000 queries.", "p99 latency"
    ),
    # the largest batch
    "largest_batch": MetricInfo(
        "samples", "Largest batch size per rank that fits in memory, found by trial and error."
    ),
    "too_large_batch": MetricInfo("samples", "Smallest batch size tried that does not fit; absent if all fit."),
    "bytes_per_sample": MetricInfo("B", "Memory per additional sample, from a linear fit to the trials' peaks."),
    "fixed_bytes": MetricInfo("B", "Memory used with an empty batch: parameters, gradients and optimiser state."),
    "memory_limit_bytes": MetricInfo(
        "B", "Memory that a rank may use, excluding `measure.headroom`; the scope names the limit."
    ),
    "peak_rank_bytes": MetricInfo("B", "Peak memory of the fullest rank with the largest batch that fits."),
    # memory and energy
    "peak_memory_reserved_bytes": MetricInfo("B", "Peak memory reserved by torch on the fullest device."),
    "peak_memory_allocated_bytes": MetricInfo("B", "Peak memory allocated by torch on the fullest device."),
    "device_memory_used_bytes": MetricInfo("B", "Memory in use on the fullest device, including other processes."),
    "rank_parameter_bytes": MetricInfo("B", "Parameters on the fullest rank between steps; with FSDP, its shard."),
    "process_peak_bytes": MetricInfo("B", "Peak resident memory of the largest process of the user's command."),
    "host_pss_bytes": MetricInfo("B", "Proportional set size of all ranks at the end of the window; not a peak."),
    "energy_joules": MetricInfo("J", "Energy used in the window, from a counter; its scope lists the components."),
    "host_energy_joules": MetricInfo("J", "Energy used by the CPU packages during a GPU's window, from RAPL."),
    # operations
    "parameters": MetricInfo("parameters", "Trainable parameters of the model."),
    "model_flops_per_sample": MetricInfo(
        "FLOP", "Counted operations per sample in a training step or an inference query."
    ),
    "model_flops_per_second": MetricInfo("FLOP/s", "`model_flops_per_sample` times the rate."),
    "matmul_ceiling_flops_per_second": MetricInfo(
        "FLOP/s", "Fastest matrix product measured on this device, in this number format."
    ),
    "mfu": MetricInfo("1", "`model_flops_per_second` divided by the measured ceiling of all devices."),
    "mfu_of_datasheet": MetricInfo("1", "`model_flops_per_second` divided by the dense datasheet peak of all devices."),
    "matmul_time_share": MetricInfo(
        "1", "Share of a step spent in matrix products, convolutions and recurrent layers, from a profiled pass."
    ),
    # the probe pass
    "data_wait_share": MetricInfo("1", "Share of a step spent waiting for data."),
    "host_to_device_share": MetricInfo("1", "Share of a step spent copying the batch to the device."),
    "forward_share": MetricInfo("1", "Share of a step spent in the forward pass."),
    "backward_share": MetricInfo("1", "Share of a step spent in the backward pass."),
    "optimizer_share": MetricInfo("1", "Share of a step spent in the optimiser."),
    "communication_share": MetricInfo("1", "Share of a step added by gradient exchange."),
    "overhead_share": MetricInfo("1", "Share of a step spent in the loop itself, between the other parts."),
    "device_behind_share": MetricInfo("1", "Share of steps after which the device still lagged behind the host."),
}
"""Core metrics, in the order of the documentation's table, which lists the features' metrics after them."""


@cache
def metrics() -> Mapping[str, MetricInfo]:
    """Return all metrics by name. A feature may also override a core metric's description."""
    merged = dict(_CORE)
    for described in registry.loaded("metrics"):
        merged |= described
    return merged


def rate_unit(rate: str) -> str:
    """Return the unit of the rate by which settings are compared; empty for an unknown rate."""
    return metrics()[rate].unit if rate in metrics() else ""


NOT_REACHED = "the run ended before this was measured"
"""The placeholder reason of a metric until the phase that measures it is over."""


def not_reached(names: Iterable[str], quality: str | None = None) -> dict[str, Metric]:
    """Return these metrics without values, with the reason `NOT_REACHED`.

    `quality` replaces the unit `per config`.
    """
    units = {name: (_CORE.get(name) or metrics()[name]).unit for name in names}
    return {
        name: Metric(value=None, unit=quality or "quality" if unit == _PER_CONFIG else unit, reason=NOT_REACHED)
        for name, unit in units.items()
    }


def quality_name(metric: str | None) -> str:
    """Return the name of a quality metric for use in a sentence: `accuracy` for `val_accuracy`."""
    return (metric or "quality").removeprefix("val_")


UNTIMED = frozenset({"quality", "samples_to_target"})
"""Metrics that depend on the seed rather than on timing, so that other load on the machine cannot affect them."""

MEMORY_METRICS = (
    "peak_memory_reserved_bytes",
    "peak_memory_allocated_bytes",
    "device_memory_used_bytes",
    "process_peak_bytes",
    "host_pss_bytes",
)
"""Memory metrics in order of preference. A setting uses the first one available; a comparison uses the first one
available for all its settings."""

MLPERF_LOG_MARK = ":::MLLOG "
"""The prefix of JSON lines in a log written by MLPerf code."""

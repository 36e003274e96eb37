"""Model FLOPs and their utilisation (MFU): against the ceiling measured here, and against the maker's datasheet.

MFU is the operations of the model per second of the run, over all devices' peak (A. Chowdhery et al., "PaLM", 2022,
appendix B). A missing metric has its reason.
"""

from __future__ import annotations

from accelsweep.core.recorded.record import Metric
from accelsweep.machine.peaks import datasheet_flops_per_second
from accelsweep.measure.ceiling import Ceiling


def utilisation_metrics(
    flops_per_sample: float | str,
    ceiling: Ceiling | str,
    samples_per_second: float,
    device_names: tuple[str, ...],
    format_name: str | None,
    what: str = "training step, recomputation excluded",
) -> dict[str, Metric]:
    """Return the five metrics. Text in place of `flops_per_sample` or `ceiling` is the reason why there is none.

    `what` names the work behind the operations per sample.
    """
    one, devices = f"one device, {format_name}", len(device_names)
    sheet = None if format_name is None else datasheet_flops_per_second(device_names[0], format_name)
    achieved: float | str = flops_per_sample
    if not isinstance(flops_per_sample, str):
        achieved = flops_per_sample * samples_per_second
    peak = ceiling if isinstance(ceiling, str) else ceiling.flops_per_second
    no_sheet = f"no datasheet's dense peak is known for {device_names[0]} in {format_name}"
    return {
        "model_flops_per_sample": _metric(flops_per_sample, "FLOP", what, "counted"),
        "model_flops_per_second": _metric(achieved, "FLOP/s", "all ranks", "counted over the window's rate"),
        "matmul_ceiling_flops_per_second": _metric(peak, "FLOP/s", one, "measured once per block"),
        "mfu": _share(achieved, peak, devices, f"of the measured matmul ceiling, {format_name}"),
        "mfu_of_datasheet": _share(
            achieved, sheet or no_sheet, devices, f"of the datasheet's dense peak, {format_name}"
        ),
    }


def _metric(value: float | str, unit: str, scope: str, provenance: str) -> Metric:
    if isinstance(value, str):
        return Metric(value=None, unit=unit, reason=value, scope=scope)
    return Metric(value=float(value), unit=unit, scope=scope, provenance=provenance)


def _share(achieved: float | str, peak: float | str, devices: int, scope: str) -> Metric:
    reason = next((text for text in (achieved, peak) if isinstance(text, str)), None)
    if isinstance(achieved, str) or isinstance(peak, str):
        return Metric(value=None, unit="1", reason=reason, scope=scope)
    if achieved > peak * devices:
        reason = (
            "withheld: the model did more operations per second than this peak, so the peak was taken while disturbed"
        )
        return Metric(value=None, unit="1", reason=reason, scope=scope)
    return Metric(value=achieved / (peak * devices), unit="1", scope=scope, provenance="counted and measured")

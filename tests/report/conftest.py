"""Hand-made findings for the report's tests: an ordinary sweep of eight settings, and one with hostile texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_sweep import effective_of

from accelsweep.config.setting import label
from accelsweep.records.estimates import Estimate, Speedup, Summary, Verdict
from accelsweep.records.findings import (
    Certainty,
    Choice,
    Findings,
    Hardware,
    Origin,
    Recommendation,
    RunPoint,
    ScalingPoint,
    SettingFinding,
    StepBottleneck,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Excluded
from accelsweep.results import Doubt, Outcome

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'> "
    "\"q\" 'a' `b` | [c](d) ${e} {{f}} \\ 你好 \u202e\x00"
)
SHARES = {
    "data_wait": 0.1,
    "host_to_device": 0.02,
    "forward": 0.3,
    "backward": 0.4,
    "optimizer": 0.05,
    "communication": 0.03,
    "overhead": 0.1,
}
BUSY = Doubt(
    code="busy_cpu", message="other processes used 35 % of the CPU", remedy="stop other work and measure again"
)


def estimate(value: float, half: float, unit: str = "1/s", confidence: float = 0.95) -> Estimate:
    low, high = round(value - half, 5), round(value + half, 5)
    return Estimate(value=value, low=low, high=high, unit=unit, confidence=confidence, count=3)


def setting(
    axes: dict[str, Any], rate: float | None, ratio: Estimate | None, verdict: Verdict, **changes: Any
) -> SettingFinding:
    """Return a setting with three runs: measured if it has a rate, otherwise out of memory."""
    name = f"{axes['devices']}{axes['batch_size']:03d}{'a' if axes['precision'] == '32-true' else 'b'}".ljust(12, "0")
    outcome = Outcome.measured if rate else Outcome.out_of_memory
    reason = None if rate else "CUDA out of memory: tried to allocate 2.00 GiB"
    runs = tuple(
        RunPoint(
            run=f"{name}-r{repeat}",
            repeat=repeat,
            block=f"b{repeat:012d}",
            position=repeat,
            outcome=outcome,
            reason=reason,
            rate=rate and rate * (1 + 0.002 * repeat),
            quality=0.95 + 0.004 * repeat if rate else None,
            started_at=f"2026-01-05T09:0{repeat}:00+00:00",
            ratio=ratio.value * (1 + 0.01 * (repeat - 1)) if rate and ratio else None,
        )
        for repeat in range(3)
    )
    memory = 3.0e7 * axes["devices"] + 2.0e5 * axes["batch_size"]
    metrics = {
        "host_pss_bytes": Summary(
            median=memory, minimum=memory, maximum=memory, count=3, unit="B", scope="process group"
        ),
        "energy_joules": Summary(
            median=None, minimum=None, maximum=None, count=0, unit="J", reason="RAPL is not readable here"
        ),
    }
    values: dict[str, Any] = {
        "setting": name,
        "label": label(axes),
        "axes": axes,
        "hardware": "example-host",
        "planned": 3,
        "measured": 3 if rate else 0,
        "outcomes": {outcome: 3},
        "reasons": () if rate else (str(reason),),
        "rate": estimate(rate, rate * 0.01) if rate else None,
        "speedup": Speedup(ratio=ratio, paired=True) if ratio else None,
        "verdict": verdict,
        "verdict_reason": "the interval lies beyond the threshold" if ratio else "no run was measured",
        "quality": estimate(0.954, 0.006, "val_accuracy") if rate else None,
        "quality_verdict": "quality: undecided" if rate else "not measured",
        "metrics": metrics if rate else {},
        "effective": effective_of(axes) if rate else None,
        "doubts": (),
        "runs": runs,
        "bottleneck": StepBottleneck(verdict="compute-bound", evidence="forward took most", shares=SHARES, count=3)
        if rate
        else None,
    }
    return SettingFinding.model_validate(values | changes)


def ordinary_settings() -> tuple[SettingFinding, ...]:
    def axes(devices: int, batch_size: int, precision: str) -> dict[str, Any]:
        return {"accelerator": "cpu", "devices": devices, "batch_size": batch_size, "precision": precision}

    def ratio(value: float, half: float) -> Estimate:
        return estimate(value, half, "x", 0.9929)

    one = Estimate(value=1.0, low=None, high=None, unit="x", confidence=0.9929, count=3, reason="it is the baseline")
    return (
        setting(axes(1, 32, "32-true"), 8000.0, one, Verdict.baseline),
        setting(axes(1, 32, "bf16-mixed"), 4810.0, ratio(0.601, 0.012), Verdict.slower),
        setting(axes(1, 128, "32-true"), 10010.0, ratio(1.251, 0.014), Verdict.faster),
        setting(axes(1, 128, "bf16-mixed"), 8030.0, ratio(1.004, 0.011), Verdict.same),
        setting(axes(2, 32, "32-true"), 14400.0, ratio(1.8, 0.02), Verdict.faster, doubts=(BUSY,)),
        setting(axes(2, 32, "bf16-mixed"), 8260.0, ratio(1.032, 0.04), Verdict.undecided),
        setting(axes(2, 128, "32-true"), 18020.0, ratio(2.252, 0.03), Verdict.faster, doubts=(BUSY,)),
        setting(axes(2, 128, "bf16-mixed"), None, None, Verdict.not_measured),
    )


def ordinary_findings(**changes: Any) -> Findings:
    settings = ordinary_settings()
    values: dict[str, Any] = {
        "sweep": "example",
        "revision": 1,
        "experiment": "quickstart",
        "overrides": ("experiment=quickstart",),
        "command": "accelsweep run experiment=quickstart devices=1,2 batch_size=32,128 precision=32-true,bf16-mixed",
        "axes": ("accelerator", "devices", "batch_size", "precision"),
        "baseline": settings[0].setting,
        "threshold": 0.02,
        "confidence": 0.95,
        "family": 7,
        "quality_metric": "val_accuracy",
        "quality_better": "higher",
        "repeats": 3,
        "planned_runs": 24,
        "outcomes": {Outcome.measured: 21, Outcome.out_of_memory: 3},
        "smallest_visible_effect": 0.043,
        "hardware": (Hardware(name="example-host", details={"device": "Intel Xeon (example)", "driver": "none"}),),
        "settings": settings,
        "excluded": (Excluded(axes={"devices": 2, "precision": "16-mixed"}, because="not of interest"),),
        "refusals": (),
        "doubts": (
            Doubt(
                code="few_repeats",
                message="3 repeats show effects of 4.3 % or more",
                remedy="add repeats with --add-repeats 2",
            ),
        ),
        "scaling": tuple(
            ScalingPoint(
                series=series,
                kind="weak",
                setting=settings[index].setting,
                devices=devices,
                speedup=estimate(value, 0.02, "x"),
                efficiency=estimate(value / devices, 0.01, ""),
            )
            for series, index, devices, value in (
                ("batch 32, 32-bit", 0, 1, 1.0),
                ("batch 32, 32-bit", 4, 2, 1.8),
                ("batch 128, 32-bit", 2, 1, 1.0),
                ("batch 128, 32-bit", 6, 2, 1.72),
            )
        ),
        "recommendation": Recommendation(
            choice=Choice(setting=settings[6].setting, title="Fastest", sentence="2.25x the baseline."),
            headline="Batch 128, 32-bit, 2 processes is 2.25x as fast",
            detail="2.22x to 2.29x (95 %), compared with batch 32, 32-bit, 1 process. Accuracy was not measured.",
            sentence="Batch 128, 32-bit, 2 processes is 2.25x as fast. 2.22x to 2.29x (95 %), compared with batch 32, "
            "32-bit, 1 process. Accuracy was not measured.",
            certainty=Certainty.sure,
            alternatives=(
                Choice(
                    setting=settings[2].setting,
                    title="Smallest memory that is faster",
                    sentence="1.25x [1.23, 1.27] the rate in 55.6 MB, on one device.",
                ),
                Choice(
                    setting=settings[4].setting,
                    title="Same batch as today",
                    sentence="1.80x [1.78, 1.82] the rate without changing the batch per device.",
                ),
            ),
            settle="accelsweep run experiment=quickstart --add-repeats 2",
        ),
        "environment": {"accelsweep": "0.1.0", "python": "3.11", "torch": "2.13.0", "lightning": "2.6.6"},
        "records_sha256": "ab" * 32,
        "origin": Origin(
            model=("SmallCNN",),
            data=("Digits",),
            threads=(4,),
            memory_bytes=(2**34,),
            commits=("c7a8931213",),
            changed=True,
            dates=("2026-01-05",),
        ),
    }
    return Findings.model_validate(values | changes)


def _hostile(value: Any, key: str = "") -> Any:
    """Append the hostile text to every free text, but not to file names, enumerated values and units."""
    if (
        key in ("sweep", "run", "outcome", "verdict", "unit", "setting", "kind", "baseline", "certainty")
        or value is None
    ):
        return value
    if type(value) is str:
        return f"{value} {HOSTILE}{'x' * 300}"
    if isinstance(value, dict):
        return {item_key: _hostile(item, str(item_key)) for item_key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hostile(item, key) for item in value]
    return value


def write_sweep(home: Path, findings: Findings) -> SweepFolder:
    """Write the findings and the steps of their measured runs into a sweep's folder."""
    folder = SweepFolder(home, findings.sweep)
    findings.write(folder.findings)
    for finding in findings.settings:
        for point in finding.runs:
            if point.outcome is Outcome.measured:
                folder.run(point.run).mkdir(parents=True)
                pq.write_table(_steps(int(finding.axes["devices"]), point.repeat), folder.steps(point.run))
    return folder


def _steps(ranks: int, repeat: int) -> pa.Table:
    rows = [
        {
            "rank": rank,
            "step": step,
            "phase": "warmup" if step < 5 else "window",
            "step_seconds": 0.004 * (3.0 if step == 0 else 1.0 + 0.02 * ((step * 7 + rank + repeat) % 5 - 2)),
        }
        for rank in range(ranks)
        for step in range(65)
    ]
    return pa.Table.from_pylist(rows)


@pytest.fixture
def findings() -> Findings:
    return ordinary_findings()


@pytest.fixture
def hostile_findings() -> Findings:
    return Findings.model_validate(_hostile(ordinary_findings().model_dump()))


@pytest.fixture
def sweep(tmp_path: Path, findings: Findings) -> SweepFolder:
    return write_sweep(tmp_path, findings)


@pytest.fixture
def hostile_sweep(tmp_path: Path, hostile_findings: Findings) -> SweepFolder:
    return write_sweep(tmp_path, hostile_findings)


@pytest.fixture
def metered(findings: Findings) -> Findings:
    """The ordinary sweep with the energy of the CPU packages for every measured setting."""
    joules = Estimate(value=0.12, low=0.11, high=0.13, unit="J", confidence=0.95, count=3)
    window = Summary(median=60.0, minimum=60.0, maximum=60.0, count=3, unit="J", scope="CPU packages of all nodes")
    settings = [
        setting.model_copy(
            update={"costs": {"joules_per_sample": joules}, "metrics": {**setting.metrics, "energy_joules": window}}
        )
        if setting.rate
        else setting
        for setting in findings.settings
    ]
    return findings.model_copy(update={"settings": tuple(settings)})

"""Each cause is found where it was programmed, with its numbers, and none where there is none."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.features.profile.step_profile import OperatorTime, StepProfile
from accelsweep.features.why_not_faster.causes import Pair, _pairs, build_section, cause_of
from accelsweep.features.why_not_faster.model import Cause, Explanation
from accelsweep.records.estimates import Verdict
from accelsweep.results import PARTS

BF16 = ({"precision": "32-true"}, {"precision": "bf16-mixed"})
COMPILE = ({"compile": None}, {"compile": "default"})
DEVICES = ({"devices": 1}, {"devices": 2})
BATCH = ({"batch_size": 32}, {"batch_size": 64})
OPTIMIZER = ({"seed": 1}, {"seed": 2})

COMPUTING = {f"{part}_share": 0.0 for part in PARTS} | {"forward_share": 0.35, "backward_share": 0.6}
BUSY_GPU = COMPUTING | {"device_behind_share": 1.0, "gpu_utilisation_mean": 0.99}


def parts(**seconds: float) -> dict[str, float]:
    """Return a breakdown of which nothing but these parts is known to take time; the rest is the forward pass."""
    known = {f"{part}_share": 0.0 for part in PARTS} | {f"{part}_share": share for part, share in seconds.items()}
    return known | {"forward_share": 1.0 - sum(seconds.values())}


def threads(count: int) -> dict[str, Any]:
    return {"effective": {"threads_per_rank": count}}


def analysed(
    simulated: ModuleType,
    axes: tuple[dict[str, Any], dict[str, Any]],
    ours: dict[str, Any],
    theirs: dict[str, Any],
    ratio: float = 1.0,
) -> Analysis:
    """Return a sweep of five blocks in which the second setting is `ratio` times as fast as the first, the baseline."""
    generator = random.Random(1)
    rows = [
        simulated.make_run(one, block, 1000.0 * speed * math.exp(generator.gauss(0, 0.002)), **fields)
        for one, speed, fields in zip(axes, (1.0, ratio), (theirs, ours), strict=True)
        for block in range(5)
    ]
    return Analysis.of(rows, simulated.make_manifest(axes, 5))


def explained(*arguments: Any, **options: Any) -> Explanation:
    section = build_section(analysed(*arguments, **options))
    assert section is not None
    (explanation,) = section.explanations
    return explanation


GPU = {"accelerator": "cuda", "device_names": ("NVIDIA A100-SXM4-40GB",)}
CORES = {"before": {"host": "node1", "cores_usable": 8, "cores_logical": 8}}
FLAGS = {"before": {"host": "node1", "cpu_flags": ["avx2", "avx512_bf16"]}}
NO_BF16 = {"before": {"host": "node1", "cpu_flags": ["avx2"]}}
LIMITED = {"before": FLAGS["before"] | {"variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}}
PART = {"before": {"host": "node1", "cores_usable": 8, "cores_logical": 64}}

PROGRAMMED = {
    "compiled in the window": (COMPILE, COMPUTING | {"recompilations": 3.0}, {}, Cause.recompiling, "3 graphs"),
    "ranks on the same cores": (
        *(
            DEVICES,
            COMPUTING | {"effective": {"threads_per_rank": 1}},
            COMPUTING | {"effective": {"threads_per_rank": 2}},
        ),
        *(Cause.few_cores, "2 ranks share the cores that the baseline uses as well: 2 threads in all"),
    ),
    "a GPU whose host is busy": (
        *(BF16, parts(data_wait=0.6) | {"host_cpu_cores_mean": 7.6, "effective": GPU, "environment": CORES}, {}),
        *(Cause.few_cores, "7.6 of the machine's 8 cores were busy"),
    ),
    "a slow loader": (BF16, parts(data_wait=0.6), {}, Cause.waiting_for_data, "waiting for data took 60 %"),
    "slow copies": (BF16, parts(host_to_device=0.6), {}, Cause.copying_batches, "took 60 % of a step"),
    "an exchange": (
        *(
            DEVICES,
            parts(communication=0.4) | {"effective": {"threads_per_rank": 2}},
            {"effective": {"threads_per_rank": 2}},
        ),
        *(Cause.all_reduce, "took 40 % of a step"),
    ),
    "small kernels": (
        *(COMPILE, COMPUTING | {"device_behind_share": 0.02, "effective": GPU}, {}),
        *(Cause.small_kernels, "at the end of only 2 % of the steps"),
    ),
    "a slow loop": (BF16, parts(overhead=0.7), {}, Cause.loop_overhead, "the loop around the model took 70 %"),
    "a power limit": (
        *(DEVICES, BUSY_GPU | threads(2) | {"gpu_power_capped_mean": 0.9, "gpu_power_limit_watts_mean": 400.0}),
        *({"gpu_power_capped_mean": 0.1} | threads(2), Cause.power_limit, "for 90 % of the window, at 400 W"),
    ),
    "TF32": (
        *(BF16, BUSY_GPU | {"effective": GPU}, BUSY_GPU | {"effective": {**GPU, "matmul_precision": "high"}}),
        *(Cause.tf32_baseline, "matmul_precision=high lets NVIDIA A100"),
    ),
    "a CPU without bf16": (
        *(BF16, COMPUTING | {"matmul_ceiling_flops_per_second": 61e9}, {"matmul_ceiling_flops_per_second": 60e9}),
        *(Cause.same_arithmetic, "matrix products reached 61.0 GFLOP/s in it, and 60.0 GFLOP/s"),
    ),
    "elementwise work": (
        *(BF16, COMPUTING, COMPUTING | {"matmul_time_share": 0.2}),
        *(Cause.other_operations, "take only 20 % of the baseline's step"),
    ),
    "nothing but matrix products": (
        *(COMPILE, COMPUTING, COMPUTING | {"matmul_time_share": 0.95}),
        *(Cause.matrix_products, "take 95 % of the baseline's step"),
    ),
    "an old CPU": (
        *(BF16, parts(data_wait=0.6) | {"environment": NO_BF16}, {"environment": NO_BF16}),
        *(Cause.emulated, "bf16 is emulated on this CPU, which has no instructions for it"),
    ),
    "a limited CPU": (
        *(BF16, COMPUTING | {"environment": LIMITED}, {"environment": LIMITED}),
        *(Cause.emulated, "bf16 is emulated on this CPU, because ONEDNN_MAX_CPU_ISA=AVX2 switches"),
    ),
    "a new CPU": (
        *(BF16, parts(data_wait=0.6) | {"environment": FLAGS}, {"environment": FLAGS}),
        *(Cause.waiting_for_data, "waiting for data took 60 %"),
    ),
    "an old CPU beside a GPU": (
        *(BF16, parts(data_wait=0.6) | {"environment": NO_BF16, "effective": GPU}, {"environment": NO_BF16}),
        *(Cause.waiting_for_data, "waiting for data took 60 %"),
    ),
    "a full device": (BATCH, BUSY_GPU, BUSY_GPU, Cause.already_busy, "took 95 % of a step"),
}


@pytest.mark.parametrize(("axes", "ours", "theirs", "cause", "words"), PROGRAMMED.values(), ids=PROGRAMMED)
def test_a_programmed_cause_is_found_with_its_numbers(simulated, axes, ours, theirs, cause, words):
    found = explained(simulated, axes, ours, theirs)
    assert found.cause is cause
    assert words in found.evidence
    assert (found.verdict, found.changed) == (Verdict.same, tuple(axes[0]))


@pytest.mark.parametrize("axes", [BF16, COMPILE, DEVICES], ids=["precision", "compile", "devices"])
@pytest.mark.parametrize("measured", [{}, COMPUTING, BUSY_GPU], ids=["nothing", "on a CPU", "on a GPU"])
def test_where_nothing_was_programmed_nothing_conclusive_is_said(simulated, axes, measured):
    found = explained(simulated, axes, measured | threads(2), measured | threads(2), ratio=0.9)
    assert (found.cause, found.verdict) == (None, Verdict.slower)
    assert found.evidence == "the parts of a step and what the machine did meanwhile do not explain it"


def test_small_parts_are_no_cause(simulated):
    little = parts(data_wait=0.1, communication=0.1, overhead=0.1) | {"gpu_power_capped_mean": 0.2}
    more = {"matmul_ceiling_flops_per_second": 2e12, "recompilations": 0.0}
    found = explained(
        simulated, BF16, little | more, {"matmul_ceiling_flops_per_second": 1e12, "matmul_time_share": 0.8}
    )
    assert found.cause is None


def test_a_faster_setting_and_one_that_was_not_meant_to_be_faster_need_no_cause(simulated):
    assert build_section(analysed(simulated, BF16, parts(data_wait=0.6), {}, ratio=1.5)) is None
    assert build_section(analysed(simulated, OPTIMIZER, parts(data_wait=0.6), {})) is None


def test_a_part_of_a_machine_whose_other_part_is_busy_does_not_lack_cores(simulated):
    waiting = parts(data_wait=0.6) | {"host_cpu_cores_mean": 30.0, "effective": GPU, "environment": PART}
    assert explained(simulated, BF16, waiting, {}).cause is Cause.waiting_for_data


def test_a_board_that_always_runs_at_its_power_limit_is_not_held_back_by_it(simulated):
    capped = BUSY_GPU | threads(2) | {"gpu_power_capped_mean": 1.0}
    assert explained(simulated, DEVICES, capped, capped).cause is None


def test_a_loop_that_takes_longer_than_computing_is_not_a_matter_of_small_kernels(simulated):
    loop = parts(overhead=0.6) | {"device_behind_share": 0.0, "effective": GPU}
    assert explained(simulated, BF16, loop, {}).cause is Cause.loop_overhead


@pytest.mark.parametrize(
    "axes",
    [
        ({"precision": "bf16-mixed"}, {"precision": "32-true"}),
        ({"compile": "default"}, {"compile": None}),
        ({"devices": 2}, {"devices": 1}),
        ({"batch_size": 64}, {"batch_size": 32}),
        ({"matmul_precision": "high"}, {"matmul_precision": "highest"}),
    ],
    ids=str,
)
def test_a_setting_that_gives_up_what_makes_it_fast_needs_no_cause(simulated, axes):
    assert build_section(analysed(simulated, axes, parts(data_wait=0.6), {}, ratio=0.8)) is None


def test_a_rate_over_a_whole_training_is_not_explained_by_a_step(simulated):
    generator = random.Random(1)
    rows = [
        simulated.make_run(
            one, block, 1000.0, results_per_hour=speed + 0.01 * generator.random(), **parts(data_wait=0.6)
        )
        for one, speed in zip(BATCH, (10.0, 8.0), strict=True)
        for block in range(5)
    ]
    analysis = Analysis.of(rows, simulated.make_manifest(BATCH, 5, rate="results_per_hour"))
    assert analysis.comparisons[1].verdict is Verdict.slower
    assert build_section(analysis) is None


def profile(*, step: float = 1.0, device: bool = False, **seconds: float) -> StepProfile:
    """Return the profile of a step, whose operators took so long."""
    rows = tuple(
        OperatorTime(name=f"aten::{name}", calls=1, host_seconds=took, device_seconds=took if device else None)
        for name, took in seconds.items()
    )
    return StepProfile(
        warmup_steps=5, steps=10, step_seconds=step, device="cuda", device_name="A", operators=rows, modules=()
    )


PROFILED = {
    "casts": (
        *(profile(addmm=0.6, _to_copy=0.3), profile(addmm=0.95)),
        *(Cause.casts, "took 30 % of a profiled step, and 0 %"),
    ),
    "small kernels": (
        *(profile(device=True, addmm=0.3), profile(device=True, addmm=0.9)),
        *(Cause.small_kernels, "during 30 % of a step"),
    ),
    "an operator": (
        *(profile(addmm=0.5, mm=0.3, sum=0.1), profile(step=0.5, addmm=0.2, mm=0.1, sum=0.05)),
        *(Cause.slower_operators, "addmm took 300 ms per step longer"),
    ),
    "two operators": (
        *(profile(addmm=0.3, mm=0.3, sum=0.3), profile(step=0.5, addmm=0.1, mm=0.15, sum=0.2)),
        *(Cause.slower_operators, "addmm and mm took 350 ms per step longer"),
    ),
    "elementwise work": (
        *(profile(add=0.7, addmm=0.2), profile(add=0.7, addmm=0.2)),
        *(Cause.other_operations, "take only 20 % of the baseline's step"),
    ),
    "the same step of other operators": (profile(mm=0.9), profile(addmm=0.9), None, None),
    "nothing": (profile(addmm=0.95), profile(addmm=0.95), None, None),
    "no profile of the baseline": (profile(addmm=0.95), None, None, None),
}


@pytest.mark.parametrize(("ours", "theirs", "cause", "words"), PROFILED.values(), ids=PROFILED)
def test_a_profile_of_both_shows_what_the_breakdown_cannot(simulated, ours, theirs, cause, words):
    (pair,) = _pairs(analysed(simulated, BF16, {}, {}, ratio=0.8))
    found = cause_of(Pair(replace(pair.setting, profile=ours), replace(pair.baseline, profile=theirs), pair.changed))
    assert found is None if cause is None else found is not None and (found[0], words in found[1]) == (cause, True)

"""What a plan takes and can show; no price is made up."""

import math

import pytest
import yaml

from accelsweep.analysis.power import smallest_visible_effect
from accelsweep.installation import shipped_root
from accelsweep.planning.cost_estimate import (
    ASSUMED_AROUND_SECONDS,
    ASSUMED_BETWEEN_SECONDS,
    ASSUMED_NOISE,
    ASSUMED_OVERHEAD_SECONDS,
    ASSUMED_PROCESS_SECONDS,
    SUBMISSIONS,
    ObservedTimes,
    estimate,
    visible_effect,
)
from accelsweep.planning.plan import make_plan

AROUND = ASSUMED_AROUND_SECONDS / 60
GPUS = [
    "site=gpu_node",
    "+site.slurm.exclusive=false",
    "accelerator=cuda",
    "devices=1,4",
    "repeats=2",
    "limits.run_seconds=95",
    "measure.min_seconds=9",
]


@pytest.fixture
def gpu_plan(home):
    """Settings on 1 and 4 GPUs, 2 repeats: 4 baseline runs on 1 GPU (2 of them in the blocks of the other), 2 on 4."""
    return lambda *more: make_plan(home, [*GPUS, *more])


def test_without_records_it_lies_between_windows_and_time_limits(gpu_plan):
    found = estimate(gpu_plan())
    runs = 2 * 2 + 0
    assert found.runs_left == len(gpu_plan().manifest.wanted_runs()) >= runs
    blocks = len(gpu_plan().manifest.blocks)
    further = 3 * sum(run.startswith(gpu_plan().settings[1].name) for run in gpu_plan().manifest.wanted_runs())
    seconds = found.runs_left * (9 + ASSUMED_OVERHEAD_SECONDS) + further * ASSUMED_PROCESS_SECONDS
    expected = (seconds + blocks * ASSUMED_BETWEEN_SECONDS) / 60 + AROUND
    most = SUBMISSIONS * sum(block.resources.minutes for block in gpu_plan().manifest.blocks)
    assert found.minutes == pytest.approx((found.runs_left * 9 / 60, expected, most))
    assert "assumed" in found.basis


def test_gpu_hours_count_every_gpu(gpu_plan):
    """A run on one GPU in a job with four, the baseline's for example, holds all four."""
    blocks = gpu_plan().manifest.blocks
    assert {block.resources.gpus for block in blocks} == {4}
    four = gpu_plan().settings[1].name
    runs = [run for block in blocks for run in block.runs]
    expected = sum(
        9 + ASSUMED_OVERHEAD_SECONDS + 3 * ASSUMED_PROCESS_SECONDS * (run.rpartition("-r")[0] == four) for run in runs
    )
    most = SUBMISSIONS * sum(60 * block.resources.minutes for block in blocks)
    hours = [4 * each / 3600 for each in (9 * len(runs), expected, most)]
    assert estimate(gpu_plan()).gpu_hours == pytest.approx(hours)


def test_on_a_cluster_whole_nodes_count_for_as_long_as_their_jobs_may_last(home):
    """One-GPU jobs on exclusive nodes of eight GPUs: eight times what they ask for."""
    command = [
        "site=slurm_example",
        "accelerator=cuda",
        "devices=1",
        "+prices.devices.cuda=2.0",
        "measure.min_seconds=9",
    ]
    plan = make_plan(home, command)
    found, minutes = estimate(plan), sum(block.resources.minutes for block in plan.manifest.blocks)
    runs = len(plan.manifest.wanted_runs())
    assert found.gpu_hours.most == pytest.approx(SUBMISSIONS * 8 * minutes / 60)
    assert found.gpu_hours.least == pytest.approx(8 * runs * 9 / 3600)
    assert found.usd == pytest.approx([2.0 * hours for hours in found.gpu_hours])
    shared = estimate(make_plan(home, [*command, "site.slurm.exclusive=false"]))
    assert shared.gpu_hours == pytest.approx([hours / 8 for hours in found.gpu_hours])
    assert shared.minutes == found.minutes


def test_a_job_without_gpus_costs_what_its_cpu_nodes_do(home):
    command = ["site=slurm_example", "accelerator=cpu", "threads=4", "+prices.devices.cpu=3.0"]
    plan = make_plan(home, command)
    found, minutes = estimate(plan), sum(block.resources.minutes for block in plan.manifest.blocks)
    assert found.gpu_hours == (0.0, 0.0, 0.0)
    assert found.usd.most == pytest.approx(SUBMISSIONS * 3.0 * minutes / 60)


def test_the_most_holds_where_a_run_is_tried_again_and_a_job_is_submitted_again(home):
    """A run may fail at its time limit and be tried again; Snakemake submits a failed job once more."""
    for retries in (0, 2):
        plan = make_plan(home, ["accelerator=cpu", f"limits.retries={retries}", "limits.run_seconds=95"])
        runs = len(plan.manifest.wanted_runs())
        assert estimate(plan).minutes.most == pytest.approx((1 + retries) * runs * 100 / 60)
    for profile in ("slurm", "grid_engine"):
        text = (shipped_root() / "workflows/profiles" / profile / "profile.yaml").read_text()
        assert 1 + yaml.safe_load(text)["retries"] == SUBMISSIONS


def test_cpu_settings_take_no_gpu_hours(home):
    assert estimate(make_plan(home, ["accelerator=cpu"])).gpu_hours == (0.0, 0.0, 0.0)


def test_earlier_runs_replace_the_guess_and_settled_ones_are_left_out(gpu_plan):
    plan = gpu_plan()
    one, four = plan.settings
    settled = [run for run in plan.manifest.wanted_runs() if run.startswith(four.name)]
    took = ObservedTimes("earlier runs", {one.name: [20.0, 22.0]}, {("cuda", "train_throughput"): [5.0, 7.0]}, [3.0])
    found, blocks = estimate(plan, settled, took), len(plan.manifest.blocks)
    assert found.runs_left == len(plan.manifest.wanted_runs()) - 2
    assert found.minutes.expected == pytest.approx((found.runs_left * 21 + blocks * 3) / 60 + AROUND)
    assert found.basis == "earlier runs"
    both = estimate(plan, (), took)
    assert both.minutes.expected - found.minutes.expected == pytest.approx(2 * (9 + 6) / 60)


def test_no_price_no_cost_and_the_reason(gpu_plan, home):
    assert (estimate(gpu_plan()).usd, estimate(gpu_plan()).usd_reason) == (None, "no prices are given")
    other = estimate(gpu_plan("+prices.devices.cpu=1"))
    assert other.usd is None
    assert "cuda" in other.usd_reason


def test_dollars_follow_from_gpu_hours_and_a_given_price(gpu_plan):
    found = estimate(gpu_plan("+prices.devices.cuda=3.5"))
    assert found.usd == pytest.approx(tuple(3.5 * hours for hours in found.gpu_hours))
    assert found.usd_reason is None


def test_a_model_has_precedence_over_its_accelerator(gpu_plan, own_conf):
    own_conf({"prices/mine.yaml": "devices: {cuda: 1, NVIDIA H100 80GB HBM3: {usd_per_hour: 2, source: a list}}\n"})
    found = estimate(gpu_plan("prices=mine"))
    assert found.usd == pytest.approx(tuple(2 * hours for hours in found.gpu_hours))


def test_a_cpu_run_costs_the_whole_machine(home):
    plan = make_plan(home, ["accelerator=cpu", "devices=2", "+prices.devices.cpu=6"])
    found, breaks = estimate(plan), (0.0, len(plan.manifest.blocks) * ASSUMED_BETWEEN_SECONDS / 60 + AROUND, 0.0)
    ours = [minutes - extra for minutes, extra in zip(found.minutes, breaks, strict=True)]
    assert found.usd == pytest.approx([minutes / 60 * 6 for minutes in ours])


def test_the_smallest_effect_states_its_assumption(home):
    plan = make_plan(home, ["experiment=quickstart"])
    found = visible_effect(plan)
    noise = ASSUMED_NOISE * math.sqrt((1 + 1 / 2) / 2)  # two runs of the baseline in each block: half its variance
    assert found.effect == smallest_visible_effect(5, noise, family=7, threshold=0.02)
    once = make_plan(home, ["experiment=quickstart", "block.baseline_runs=1"])
    assert visible_effect(once).effect == smallest_visible_effect(5, ASSUMED_NOISE, family=7, threshold=0.02)
    for word in ("1.0%", "assumed", "7 comparisons", "80%"):
        assert word in found.assumption
    assert visible_effect(plan, noise=0.05).effect > found.effect
    assert "seen" in visible_effect(plan, noise=0.05).assumption


def test_where_no_interval_can_be_had_the_reason_is_given(home):
    assert visible_effect(make_plan(home, ["batch_size=8,16", "repeats=1"])).reason == "one repeat gives no interval"
    assert "no other setting" in visible_effect(make_plan(home, [])).reason

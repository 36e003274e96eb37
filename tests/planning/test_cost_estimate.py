"""The time and the cost of a plan, the effect that it can show, and its table."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from example_sweep import config_of

from accelsweep.analysis.statistical_power import smallest_visible_effect
from accelsweep.config.schema import checked_config
from accelsweep.devices import kinds
from accelsweep.installation import shipped_root
from accelsweep.planning.cost_estimate import (
    ASSUMED_AROUND_SECONDS,
    ASSUMED_BETWEEN_SECONDS,
    ASSUMED_EMULATION_FACTOR,
    ASSUMED_NOISE,
    ASSUMED_OVERHEAD_SECONDS,
    ASSUMED_PROCESS_SECONDS,
    SUBMISSIONS,
    ObservedTimes,
    RunTime,
    TimeLimits,
    estimate,
    plan_table,
    visible_effect,
)
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.planning.resources import START_UP_SECONDS, with_observed_limit
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Resources

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


def test_without_records_the_estimate_lies_between_windows_and_time_limits(gpu_plan):
    found = estimate(gpu_plan())
    runs = 2 * 2 + 0
    assert found.runs_left == len(gpu_plan().manifest.wanted_runs()) >= runs
    blocks = len(gpu_plan().manifest.blocks)
    further = 3 * sum(run.startswith(gpu_plan().settings[1].name) for run in gpu_plan().manifest.wanted_runs())
    seconds = found.runs_left * (9 + ASSUMED_OVERHEAD_SECONDS) + further * ASSUMED_PROCESS_SECONDS
    expected = (seconds + blocks * ASSUMED_BETWEEN_SECONDS) / 60 + AROUND
    most = SUBMISSIONS * sum(block.resources.minutes for block in gpu_plan().manifest.blocks)
    assert tuple(found.minutes) == pytest.approx((found.runs_left * 9 / 60, expected, most))
    assert "assumed" in found.basis


def test_gpu_hours_count_every_gpu(gpu_plan):
    """A run on one GPU in a job with four, such as the baseline's, allocates all four."""
    blocks = gpu_plan().manifest.blocks
    assert {block.resources.gpus for block in blocks} == {4}
    four = gpu_plan().settings[1].name
    runs = [run for block in blocks for run in block.runs]
    expected = sum(
        9 + ASSUMED_OVERHEAD_SECONDS + 3 * ASSUMED_PROCESS_SECONDS * (run.rpartition("-r")[0] == four) for run in runs
    )
    most = SUBMISSIONS * sum(60 * block.resources.minutes for block in blocks)
    hours = [4 * each / 3600 for each in (9 * len(runs), expected, most)]
    assert tuple(estimate(gpu_plan()).gpu_hours) == pytest.approx(hours)


def test_on_a_cluster_exclusive_nodes_count_for_the_time_limit_of_their_jobs(home):
    """One-GPU jobs on exclusive nodes with eight GPUs allocate eight times what they request."""
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
    assert tuple(found.usd) == pytest.approx([2.0 * hours for hours in found.gpu_hours])
    shared = estimate(make_plan(home, [*command, "site.slurm.exclusive=false"]))
    assert tuple(shared.gpu_hours) == pytest.approx([hours / 8 for hours in found.gpu_hours])
    assert shared.minutes == found.minutes


def test_a_job_without_gpus_costs_its_cpu_nodes(home):
    command = ["site=slurm_example", "accelerator=cpu", "threads=4", "+prices.devices.cpu=3.0"]
    plan = make_plan(home, command)
    found, minutes = estimate(plan), sum(block.resources.minutes for block in plan.manifest.blocks)
    assert tuple(found.gpu_hours) == (0.0, 0.0, 0.0)
    assert found.usd.most == pytest.approx(SUBMISSIONS * 3.0 * minutes / 60)


def test_the_upper_bound_includes_retries_of_runs_and_resubmissions_of_jobs(home):
    """A run may fail at its time limit and be retried; Snakemake resubmits a failed job once."""
    for retries in (0, 2):
        plan = make_plan(home, ["accelerator=cpu", f"limits.retries={retries}", "limits.run_seconds=95"])
        runs = len(plan.manifest.wanted_runs())
        assert estimate(plan).minutes.most == pytest.approx((1 + retries) * runs * 100 / 60)
    for profile in ("slurm", "grid_engine"):
        text = (shipped_root() / "workflows/profiles" / profile / "profile.yaml").read_text()
        assert 1 + yaml.safe_load(text)["retries"] == SUBMISSIONS


def test_cpu_settings_use_no_gpu_hours(home):
    assert tuple(estimate(make_plan(home, ["accelerator=cpu"])).gpu_hours) == (0.0, 0.0, 0.0)


def test_observed_times_replace_assumed_ones_and_settled_runs_are_left_out(gpu_plan):
    plan = gpu_plan()
    one, four = plan.settings
    settled = [run for run in plan.manifest.wanted_runs() if run.startswith(four.name)]
    observed = ObservedTimes(
        "earlier runs", {one.name: [20.0, 22.0]}, {("cuda", "train_throughput", False): [5.0, 7.0]}, [3.0]
    )
    found, blocks = estimate(plan, settled, observed), len(plan.manifest.blocks)
    assert found.runs_left == len(plan.manifest.wanted_runs()) - 2
    assert found.minutes.expected == pytest.approx((found.runs_left * 21 + blocks * 3) / 60 + AROUND)
    assert found.basis == "earlier runs"
    both = estimate(plan, (), observed)
    assert both.minutes.expected - found.minutes.expected == pytest.approx(2 * (9 + 6) / 60)


def test_without_a_price_there_is_no_cost_but_a_reason(gpu_plan, home):
    assert (estimate(gpu_plan()).usd, estimate(gpu_plan()).usd_reason) == (None, "no prices are given")
    other = estimate(gpu_plan("+prices.devices.cpu=1"))
    assert other.usd is None
    assert "cuda" in other.usd_reason


def test_dollars_follow_from_gpu_hours_and_a_given_price(gpu_plan):
    found = estimate(gpu_plan("+prices.devices.cuda=3.5"))
    assert tuple(found.usd) == pytest.approx(tuple(3.5 * hours for hours in found.gpu_hours))
    assert found.usd_reason is None


def test_a_model_has_precedence_over_its_accelerator(gpu_plan, own_conf):
    own_conf({"prices/mine.yaml": "devices: {cuda: 1, NVIDIA H100 80GB HBM3: {usd_per_hour: 2, source: a list}}\n"})
    found = estimate(gpu_plan("prices=mine"))
    assert tuple(found.usd) == pytest.approx(tuple(2 * hours for hours in found.gpu_hours))


def test_a_cpu_run_costs_the_whole_machine(home):
    plan = make_plan(home, ["accelerator=cpu", "devices=2", "+prices.devices.cpu=6"])
    found, breaks = estimate(plan), (0.0, len(plan.manifest.blocks) * ASSUMED_BETWEEN_SECONDS / 60 + AROUND, 0.0)
    ours = [minutes - extra for minutes, extra in zip(found.minutes, breaks, strict=True)]
    assert tuple(found.usd) == pytest.approx([minutes / 60 * 6 for minutes in ours])


def test_the_smallest_effect_states_its_assumption(home):
    plan = make_plan(home, ["experiment=quickstart"])
    found = visible_effect(plan)
    noise = ASSUMED_NOISE * math.sqrt((1 + 1 / 2) / 2)  # two baseline runs per block halve its variance
    assert found.effect == smallest_visible_effect(5, noise, family=7, threshold=0.02)
    once = make_plan(home, ["experiment=quickstart", "block.baseline_runs=1"])
    assert visible_effect(once).effect == smallest_visible_effect(5, ASSUMED_NOISE, family=7, threshold=0.02)
    for word in ("1.0%", "assumed", "7 comparisons", "80%"):
        assert word in found.assumption
    assert visible_effect(plan, noise=0.05).effect > found.effect
    assert "seen" in visible_effect(plan, noise=0.05).assumption


def test_a_plan_without_intervals_gives_the_reason(home):
    assert visible_effect(make_plan(home, ["batch_size=8,16", "repeats=1"])).reason == "one repeat gives no interval"
    assert "no other setting" in visible_effect(make_plan(home, [])).reason


EXAMPLES = Path(__file__).resolve().parents[2] / "reports" / "examples"

CONFIG = checked_config(config_of({"devices": 1, "batch_size": 64, "precision": "32-true"}))
"""Of a setting that the example lacks; its window is to last a second."""


@pytest.fixture
def records(example_sweep):
    """The example's records: three blocks that start ten minutes apart, with a run every 20 s."""
    return [Record.read(path) for path in example_sweep.latest_records()]


def test_a_measured_setting_is_expected_to_take_the_mean_of_its_runs(records):
    setting = records[0].setting
    mine = [record.wall_seconds for record in records if record.setting == setting]
    assert ObservedTimes.from_runs(map(RunTime.of, records), "x").seconds(setting, CONFIG) == pytest.approx(
        sum(mine) / len(mine)
    )


def test_a_new_setting_is_expected_to_take_its_window_and_the_usual_overhead(records):
    window = CONFIG.measure.min_seconds
    timed = [record.model_copy(update={"wall_seconds": window + 4.0}) for record in records]
    observed = ObservedTimes.from_runs(map(RunTime.of, timed), "x")
    longer = checked_config({**CONFIG.raw, "measure": {**CONFIG.raw["measure"], "min_seconds": 30.0}})
    assert observed.seconds("other", CONFIG) == pytest.approx(window + 4.0)
    assert observed.seconds("other", longer) == pytest.approx(34.0)
    elsewhere = checked_config({**CONFIG.raw, "accelerator": "cuda"})
    assert observed.seconds("other", elsewhere) == pytest.approx(window + ASSUMED_OVERHEAD_SECONDS)


def emulating(records):
    """Return the records as of a processor without bf16, whose runs in bf16-mixed took a minute longer."""
    old = {"before": {**records[0].environment["before"], "cpu_flags": ["avx2"]}}
    for record in records:
        is_slow = record.config.precision == "bf16-mixed"
        yield record.model_copy(update={"environment": old, "wall_seconds": 64.0 if is_slow else 4.0})


def test_a_precision_that_the_cpu_emulates_is_expected_to_take_several_times_as_long():
    usual, emulated = (ObservedTimes().seconds("new", CONFIG, is_emulated=known) for known in (False, True))
    slower = (ASSUMED_EMULATION_FACTOR - 1) * ASSUMED_OVERHEAD_SECONDS
    assert emulated - usual == pytest.approx(CONFIG.measure.longest_seconds - CONFIG.measure.min_seconds + slower)


def test_emulated_runs_tell_how_long_others_take_and_not_how_long_usual_ones_do(records):
    observed = ObservedTimes.from_runs(map(RunTime.of, emulating(records)), "x")
    assert {record.config.precision for record in records} == {"32-true", "bf16-mixed"}
    assert observed.seconds("new", CONFIG) == pytest.approx(4.0)
    assert observed.seconds("new", CONFIG, is_emulated=True) == pytest.approx(64.0)
    usual = ObservedTimes.from_runs(
        [RunTime.of(each) for each in emulating(records) if each.config.precision == "32-true"], "x"
    )
    assert 4.0 < usual.seconds("new", CONFIG, is_emulated=True) < 64.0


def test_a_plan_says_what_the_cpu_emulates_and_reckons_with_it(monkeypatch, home):
    """On a cluster, nothing is known about the nodes' processors unless the site declares it."""
    command = ["accelerator=cpu", "precision=32-true,bf16-mixed,16-mixed", "repeats=1"]
    before = estimate(make_plan(home, command)).minutes.expected
    (cpu,) = kinds.inventory()
    monkeypatch.setattr(kinds, "inventory", lambda *_: (replace(cpu, emulates=("bf16", "fp16")),))
    plan = make_plan(home, command)
    said = [note for note in plan.notes if "emulated" in note]
    assert said == ["bf16-mixed is emulated on this CPU: expect it to be several times slower"]
    assert estimate(plan).minutes.expected > 1.5 * before
    elsewhere = make_plan(home, [*command, "site=slurm_example"])
    assert not any("emulated" in note for note in elsewhere.notes)


def test_the_assumed_times_are_those_of_the_finished_examples():
    """The total of all runs and breaks, within a fifth; they were measured on an idle machine."""
    for name in ("quickstart", "ladder"):
        files = sorted((EXAMPLES / name / "sweeps" / name / "runs").glob("*/record.json"))
        records = [Record.read(file) for file in files]
        observed = ObservedTimes.from_runs(map(RunTime.of, records), "x")
        seconds = sum(record.wall_seconds for record in records) + sum(observed.breaks)
        assumed = sum(ObservedTimes().seconds("never measured", record.config) for record in records)
        assumed += len(observed.breaks) * ASSUMED_BETWEEN_SECONDS
        assert assumed == pytest.approx(seconds, rel=0.2), name


def test_unsupported_runs_show_no_times(records):
    unsupported = {"outcome": Outcome.unsupported, "reason": "no such device", "wall_seconds": 0.0}
    assert (
        ObservedTimes.from_runs(map(RunTime.of, [record.model_copy(update=unsupported) for record in records]), "x")
        is None
    )
    assert ObservedTimes.from_runs([], "x") is None


def test_only_blocks_of_the_same_command_show_the_time_between_blocks(records):
    assert ObservedTimes.from_runs(map(RunTime.of, records), "x").between_blocks == ASSUMED_BETWEEN_SECONDS, (
        "minutes lie between the example's blocks"
    )
    first, second = (dict(zip(("started_at", "finished_at"), times, strict=True)) for times in SPANS)
    two = [
        records[0].model_copy(update={"block": "a", **first}),
        records[1].model_copy(update={"block": "b", **second}),
    ]
    assert ObservedTimes.from_runs(map(RunTime.of, two), "x").between_blocks == pytest.approx(7.0)


SPANS = (
    ("2026-01-05T09:00:00.000+00:00", "2026-01-05T09:00:30.000+00:00"),
    ("2026-01-05T09:00:37.000+00:00", "2026-01-05T09:00:50.000+00:00"),
)


@pytest.fixture
def planned_hours(example_sweep):
    """Time limits of the example, whose blocks are planned with an hour each."""
    manifest = Manifest.read(example_sweep.manifest)
    blocks = [block.model_copy(update={"resources": Resources(minutes=60, mem_mb=4000)}) for block in manifest.blocks]
    return TimeLimits(example_sweep, manifest), blocks


def test_a_job_with_measured_settings_asks_for_three_times_the_observed_time(planned_hours, example_sweep):
    limits, blocks = planned_hours
    longest = {}
    for record in map(Record.read, example_sweep.latest_records()):
        longest[record.setting] = max(longest.get(record.setting, 0.0), record.wall_seconds)
    seconds = sum(longest[Run.parse(run).setting] for run in blocks[0].runs)
    asked = limits.of(blocks[0])
    assert asked.minutes == max(5, math.ceil((START_UP_SECONDS + 3 * seconds) / 60)) < 60
    assert asked.mem_mb == 4000


def test_a_job_with_an_unmeasured_setting_keeps_its_planned_limit(planned_hours, example_sweep):
    limits, blocks = planned_hours
    setting = Run.parse(blocks[0].runs[0]).setting
    for path in example_sweep.latest_records():
        if Run.parse(path.parent.name).setting == setting:
            path.unlink()
    assert limits.of(blocks[0]).minutes == 60


@pytest.mark.parametrize(
    ("planned", "observed", "asked"), [(60, [1.0], 5), (60, [100.0, 200.0], 17), (3, [1.0], 3), (60, [9000.0], 60)]
)
def test_an_observed_limit_is_never_below_five_minutes_nor_above_the_plan(planned, observed, asked):
    assert with_observed_limit(Resources(minutes=planned), observed).minutes == asked


def test_the_table_shows_wanted_settled_unsupported_and_excluded_settings(home):
    plan = make_plan(
        home,
        [
            "experiment=quickstart",
            "exclude=[{when: {devices: 2, batch_size: 32, accelerator: cpu}, because: too small}]",
        ],
    )
    baseline = plan.manifest.baseline
    settled = [f"{baseline}-r0", f"{baseline}-r1"]
    table = plan_table(plan, settled)
    assert (table.sweep, table.revision, table.wanted, table.settled) == ("quickstart", 1, 35, 2)
    assert [(row.label, row.wanted, row.settled) for row in table.settings if row.baseline] == [
        ("batch 32, 32-bit, 1 process", 10, 2)
    ]
    assert len(table.settings) == 6
    assert {row.reason for row in table.unsupported} == {"the site 'local' has no CUDA devices"}
    assert [(row.label, row.reason) for row in table.excluded] == [
        ("batch 32, 32-bit, 2 processes", "too small"),
        ("batch 32, bf16-mixed, 2 processes", "too small"),
    ]
    assert [(row.new, row.runs, row.settled) for row in table.blocks] == [(True, 7, 2), *[(True, 7, 0)] * 4]
    assert table.estimate.runs_left == 33
    assert table.visible_effect.effect > 0.02


def test_existing_blocks_are_not_new(home):
    write_plan(home, make_plan(home, ["experiment=quickstart"]))
    table = plan_table(make_plan(home, ["experiment=quickstart", "repeats=6"]))
    assert [row.new for row in table.blocks] == [*[False] * 5, True]

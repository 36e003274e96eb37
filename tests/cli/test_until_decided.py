"""`--until-decided` adds blocks for undecided settings only, in fixed stages."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from accelsweep.config.sweep_options import LOOKS
from accelsweep.driver.adaptive_repeats import plan_after_interim_analysis
from accelsweep.errors import InputError
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.measure.run_doubts import busy_cpu
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run

pytestmark = pytest.mark.heavy

OVERRIDES = ("experiment=quickstart", "accelerator=cpu", "devices=1", "precision=32-true", "batch_size=32,64,128")
RATES = {32: 1000.0, 64: 2000.0, 128: 1030.0}
"""Batch 64 is far from the baseline; the noise leaves 128 undecided for long."""

SEED = 5


@pytest.fixture
def looked(tmp_path, example_sweep):
    """A function that measures every look of a sweep in records of this noise, and returns its plans."""
    earlier = (Record.read(path) for path in example_sweep.root.glob("runs/*/record.json"))
    template = next(record for record in earlier if record.outcome is Outcome.measured)
    home = tmp_path / "home"
    home.mkdir()

    conditions = CurrentConditions(SweepFolder(home, "sweep"))

    def record(block, run, rate, doubts):
        config = block.configs[run.setting]
        metric = replace(template.metrics["samples_per_second"], value=rate)
        return template.model_copy(
            update={
                "run": run.name,
                "setting": run.setting,
                "repeat": run.repeat,
                "block": block.name,
                "config": config,
                "doubts": doubts,
                "metrics": {**template.metrics, "samples_per_second": metric},
                "wall_seconds": 30.0,
                "fingerprint": conditions.read_fingerprint(config),
            }
        )

    def measure(noise=0.02, seconds_left=None, doubts=()):
        plans = [make_plan(home, OVERRIDES, until_decided=True)]
        while plans[-1] is not None:
            folder = write_plan(home, plans[-1])
            for new in plans[-1].new_blocks:
                for run in new.runs:
                    batch = new.configs[run.setting].batch_size
                    dice = random.Random(f"{SEED} {batch} {run.repeat}")  # the same noise whatever settings are called
                    rate = RATES[batch] * math.exp(dice.gauss(0.0, noise))
                    record(new, run, rate, doubts).write(folder.record(run.name))
            plans.append(plan_after_interim_analysis(home, plans[-1], OVERRIDES, None, seconds_left))
        return home, plans[:-1]

    return measure


def runs_of(plan):
    sizes = {setting.name: setting.config.batch_size for setting in plan.settings}
    return Counter(sizes[Run.parse(run).setting] for block in plan.manifest.blocks for run in set(block.runs))


def test_decided_settings_get_no_further_blocks_and_the_others_continue(looked, capsys):
    _, plans = looked()
    assert [plan.manifest.options.repeats for plan in plans] == list(LOOKS)
    last = runs_of(plans[-1])
    assert last[128] == LOOKS[-1]
    assert last[64] < last[128]
    assert last[64] in LOOKS
    told = capsys.readouterr().out
    assert "until decided: after 3 blocks, 2 of 2 settings undecided; next analysis after 5" in told
    assert "after 20 blocks, 1 setting without a verdict; no further analysis" in told


def test_quiet_settings_are_decided_early(looked, capsys):
    _, plans = looked(noise=0.0005)
    assert plans[-1].manifest.options.repeats < LOOKS[-1]
    assert "everything decided" in capsys.readouterr().out


def test_repeating_the_command_changes_no_plan(looked):
    home, plans = looked()
    again = make_plan(home, OVERRIDES, until_decided=True)
    assert again.manifest == plans[-1].manifest
    assert not again.new_blocks


def test_blocks_that_exceed_the_time_budget_are_not_planned(looked, capsys):
    _, plans = looked(seconds_left=10.0)
    assert len(plans) == 1
    assert "the time budget has no room for 5" in capsys.readouterr().out


def test_if_all_undecided_settings_are_disturbed_the_second_analysis_is_the_last(looked, capsys):
    busy = busy_cpu(1.9, 0.1)
    assert busy is not None
    _, plans = looked(doubts=(busy,))
    assert [plan.manifest.options.repeats for plan in plans] == list(LOOKS[:2])
    told = (
        "after 5 blocks, 2 settings without a verdict; no further analysis, because other processes disturb all of them"
    )
    assert told in capsys.readouterr().out


def test_every_new_block_includes_the_baseline(looked):
    _, plans = looked()
    baseline = plans[-1].manifest.baseline
    for block in plans[-1].new_blocks:
        assert isinstance(block, Block)
        assert baseline in {run.setting for run in block.runs}


@pytest.mark.parametrize(
    ("more", "options", "words"),
    [
        (["repeats=auto"], {}, "--until-decided and repeats=auto"),
        ([], {"add_repeats": 2}, "--until-decided and --add-repeats 2"),
        (["repeats_most=2"], {}, "needs at least 3 blocks"),
    ],
)
def test_conflicting_numbers_of_blocks_are_refused(tmp_path, more, options, words):
    with pytest.raises(InputError, match=words):
        make_plan(tmp_path, [*OVERRIDES, *more], until_decided=True, **options)

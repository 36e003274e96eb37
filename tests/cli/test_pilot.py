"""After a pilot, as many blocks follow as its noise requires and the remaining time allows."""

import math
import random
from dataclasses import replace

import pytest

from accelsweep.driver.adaptive_repeats import plan_after_pilot, refuse_short_budget
from accelsweep.errors import InputError
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.plan import Block
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.heavy

OVERRIDES = ("experiment=quickstart", "accelerator=cpu", "devices=1", "repeats=auto")
SECONDS = 30.0


@pytest.fixture
def measured(tmp_path, example_sweep):
    """A function that plans a pilot of four settings and writes records of this noise for all of its runs."""
    earlier = (Record.read(path) for path in example_sweep.root.glob("runs/*/record.json"))
    template = next(record for record in earlier if record.outcome is Outcome.measured)
    home = tmp_path / "home"
    home.mkdir()

    def measure(noise, *more):
        plan = make_plan(home, [*OVERRIDES, *more])
        folder, generator = write_plan(home, plan), random.Random(5)
        for block in (Block.read(folder.block(each.name)) for each in plan.manifest.blocks):
            for run in block.runs:
                rate = 1000.0 * math.exp(generator.gauss(0.0, noise))
                config = block.configs[run.setting]
                metric = replace(template.metrics["samples_per_second"], value=rate)
                template.model_copy(
                    update={
                        "run": run.name,
                        "setting": run.setting,
                        "repeat": run.repeat,
                        "block": block.name,
                        "config": config,
                        "metrics": {**template.metrics, "samples_per_second": metric},
                        "wall_seconds": SECONDS,
                        "fingerprint": CurrentConditions(folder).read_fingerprint(config),
                    }
                ).write(folder.record(run.name))
        return home, plan

    return measure


def after(measured, noise, seconds_left=None, more=()):
    home, plan = measured(noise, *more)
    return plan_after_pilot(home, plan, [*OVERRIDES, *more], None, seconds_left)


def test_a_quiet_pilot_needs_the_fewest_blocks_and_a_noisy_one_more(measured, capsys):
    assert len(after(measured, 0.001).manifest.blocks) == 5
    assert "needs 5 blocks in total" in capsys.readouterr().out


def test_a_very_noisy_pilot_gets_the_most_blocks_and_the_remaining_width_is_printed(measured, capsys):
    assert len(after(measured, 0.5, more=["repeats_most=7"]).manifest.blocks) == 7
    assert "is too high even for 7 blocks, the maximum (repeats_most)" in capsys.readouterr().out


def test_the_remaining_time_limits_the_blocks(measured, capsys):
    """A block of four settings has five runs of 30 s: 400 s have room for two of them."""
    assert len(after(measured, 0.5, 400.0).manifest.blocks) == 5
    assert "the time budget has room for 2" in capsys.readouterr().out


def test_without_time_left_the_pilot_is_the_result(measured):
    assert after(measured, 0.5, -1.0) is None


def test_a_plan_with_enough_blocks_is_left_alone(measured):
    home, plan = measured(0.001)
    further = plan_after_pilot(home, plan, OVERRIDES, None, None)
    write_plan(home, further)
    assert plan_after_pilot(home, further, OVERRIDES, None, None) is None


def test_a_number_of_repeats_needs_no_pilot(tmp_path):
    plan = make_plan(tmp_path, ["experiment=quickstart"])
    assert plan_after_pilot(tmp_path, plan, ["experiment=quickstart"], None, None) is None
    refuse_short_budget(tmp_path, plan, 1.0)


def test_a_budget_too_short_for_the_pilot_is_refused_with_its_duration(tmp_path):
    plan = make_plan(tmp_path, OVERRIDES)
    with pytest.raises(InputError, match=r"--time-budget 14s is too short .* its 15 runs take at least 15 s"):
        refuse_short_budget(tmp_path, plan, 14.0)
    refuse_short_budget(tmp_path, plan, 16.0)
    assert list(tmp_path.iterdir()) == []

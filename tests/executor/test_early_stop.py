"""Blocks leave out the settings that the blocks before them have decided, and a user can have them back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny_executor import TinyBlock
from tiny_sweep import config_with

from accelsweep.analysis.collect import collect
from accelsweep.cli.runs import retry_runs
from accelsweep.config.site import Site
from accelsweep.devices.device_kind import Device
from accelsweep.executor.early_stop import quality_put_off
from accelsweep.executor.result_reuse import audit
from accelsweep.records.early_decisions import early_decisions
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.sweep_progress import status
from accelsweep.results import Outcome
from accelsweep.run_config import Run

BLOCKS = 4
RATES = ("rate:1000", "rate:100", "rate:990", "rate:1500")


class Race:
    """A sweep of several blocks with the settings of `RATES`, of which the first is the baseline."""

    def __init__(self, tiny: TinyBlock, **limits: object) -> None:
        self.tiny = tiny
        tiny.plan(*RATES, limits=limits)
        self.folder = tiny.folder
        first, manifest = Block.read(tiny.block_file), Manifest.read(self.folder.manifest)
        (planned,) = manifest.blocks
        self.settings = [run.setting for run in first.runs]
        blocks = []
        for number in range(BLOCKS):
            runs = tuple(Run.of(setting, number, 0) for setting in self.settings)
            block = first.model_copy(update={"name": f"b{number:012d}", "runs": runs})
            block.write(self.folder.block(block.name))
            blocks.append(planned.model_copy(update={"name": block.name, "runs": tuple(run.name for run in runs)}))
        manifest = manifest.model_copy(update={"blocks": tuple(blocks), "baseline": self.settings[0]})
        manifest.write(self.folder.manifest)
        self.blocks = [block.name for block in blocks]

    @property
    def manifest(self) -> Manifest:
        """The plan."""
        return Manifest.read(self.folder.manifest)

    def measure(self, *blocks: int) -> str:
        """Run an executor on these blocks, or on all; return its output."""
        output = ""
        for number in blocks or range(BLOCKS):
            self.tiny.block_file = self.folder.block(self.blocks[number])
            code, text = self.tiny.run()
            assert code == 0, text
            output += text
        return output

    def measured(self, setting: int) -> int:
        """Return how many repeats of a setting have a record."""
        return sum(self.folder.record(f"{self.settings[setting]}-r{number}").exists() for number in range(BLOCKS))


def test_a_setting_that_two_blocks_have_decided_is_left_out_of_the_others_and_the_sweep_is_complete(
    tiny_block: TinyBlock,
) -> None:
    race = Race(tiny_block)
    output = race.measure()
    assert [race.measured(setting) for setting in range(len(RATES))] == [BLOCKS, 2, BLOCKS, BLOCKS]
    decision = early_decisions(race.folder).settings[race.settings[1]]
    assert f"{race.settings[1]}: left out: {decision.reason}" in output
    assert decision.blocks == (race.blocks[0], race.blocks[1])
    assert len(Done.read(race.folder.done(race.blocks[2])).records) == len(RATES) - 1
    states = audit(race.folder, check_conditions=True)
    assert (states.unsettled, states.reopened) == ((), ())
    found = status(race.folder, race.manifest)
    assert (found.remaining, found.outcomes) == (0, {Outcome.measured: 14, Outcome.decided: 2})
    left_out = [row for row in collect(race.folder) if row.outcome is Outcome.decided]
    assert [(row.repeat, row.reason) for row in left_out] == [(2, decision.reason), (3, decision.reason)]


def test_without_early_decisions_the_same_command_measures_what_was_left_out(tiny_block: TinyBlock) -> None:
    race = Race(tiny_block)
    race.measure()
    manifest = race.manifest
    limits = manifest.options.limits.model_copy(update={"stop_early": False})
    manifest.model_copy(update={"options": manifest.options.model_copy(update={"limits": limits})}).write(
        race.folder.manifest
    )
    assert audit(race.folder).reopened == tuple(race.blocks[2:])
    race.measure()
    assert race.measured(1) == BLOCKS
    assert all(row.outcome is Outcome.measured for row in collect(race.folder))


def test_decisions_on_blocks_that_are_measured_again_are_dropped(tiny_block: TinyBlock) -> None:
    race = Race(tiny_block)
    race.measure(0, 1, 2)
    assert early_decisions(race.folder).settings
    race.folder.done(race.blocks[0]).unlink()
    race.folder.done(race.blocks[1]).unlink()
    race.measure(0)
    assert not early_decisions(race.folder).settings


@pytest.mark.parametrize("change", ["compared", "until_decided"])
def test_sweeps_that_have_looks_or_partners_of_their_own_leave_nothing_out(tiny_block: TinyBlock, change: str) -> None:
    race = Race(tiny_block)
    manifest = race.manifest
    options = manifest.options
    if change == "until_decided":
        options = options.model_copy(update={"until_decided": True})
    else:
        options = options.model_copy(update={"report": {"ladder": {"axis": "act"}}})
    manifest.model_copy(update={"options": options}).write(race.folder.manifest)
    race.measure()
    assert race.measured(1) == BLOCKS


def test_a_user_can_have_the_settings_that_were_left_out_measured_nevertheless(
    tiny_block: TinyBlock, capsys: pytest.CaptureFixture[str]
) -> None:
    race = Race(tiny_block)
    race.measure()
    retry_runs(tiny_block.home, "tiny", "decided")
    assert "tiny: 2 runs re-opened" in capsys.readouterr().out
    assert [race.folder.done(block).exists() for block in race.blocks] == [True, True, False, False]
    race.measure()
    assert race.measured(1) == BLOCKS
    assert early_decisions(race.folder).reopened == (race.settings[1],)


def put_off(race: Race, repeats: int = 5, site: Site | None = None) -> list[str | None]:
    """Return why each setting's quality phase is put off, in a sweep with this many repeats."""
    options = race.manifest.options.model_copy(update={"repeats": repeats})
    manifest = race.manifest.model_copy(update={"options": options, "site": site or race.manifest.site})
    configs = Block.read(race.folder.block(race.blocks[0])).configs
    measure = config_with(measure={"quality_samples": 512}).measure
    return [
        quality_put_off(race.folder, manifest, setting, replace(configs[setting], measure=measure))
        for setting in race.settings
    ]


def test_the_quality_phase_of_a_setting_that_was_much_slower_at_first_is_put_off_while_blocks_remain_for_it(
    tiny_block: TinyBlock,
) -> None:
    race = Race(tiny_block)
    assert put_off(race) == [None] * 4
    race.measure(0)
    reason = put_off(race)[1]
    assert reason is not None
    assert reason.startswith("put off until the setting has not been left out: its first repeat was 0.1x as fast")
    assert put_off(race)[::2] == [None, None]
    assert put_off(race, repeats=4) == [None] * 4
    race.measure(1)
    assert put_off(race) == [None] * 4


def test_the_quality_phase_of_emulated_settings_is_put_off_from_the_first_repeat(tiny_block: TinyBlock) -> None:
    race = Race(tiny_block)
    cpu = Device("cpu", "CPU", 2, emulates=("fp32",))
    site = race.manifest.site.model_copy(update={"inventory": (cpu,)})
    assert put_off(race, site=site)[0] is None
    assert all("32-true is emulated on this CPU" in str(reason) for reason in put_off(race, site=site)[1:])

"""The watchdog: when a rank counts as stalled, how its run is ended, and what the log and the reason say."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock
from polling import PATIENCE_SECONDS
from tiny_executor import TinyBlock
from tiny_sweep import measure_sweep, plan_sweep

from accelsweep.executor.run_watchdog import Watchdog
from accelsweep.heartbeat import Heartbeat
from accelsweep.results import Outcome

_SHORT = {"silence_seconds": 0.5, "retries": 0, "stop_grace_seconds": 0.5}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def stalled(watchdog: Watchdog, clock: FakeClock, seconds: int) -> frozenset[int]:
    """Check once a second for so many seconds; return the ranks that were stalled for too long."""
    ranks: frozenset[int] = frozenset()
    for _ in range(seconds):
        clock.advance(1.0)
        ranks |= watchdog.stalled(clock())
    return ranks


def test_a_rank_is_stalled_once_no_step_came_for_the_limit(spec, clock: FakeClock) -> None:
    made = spec()
    watchdog, heartbeat = Watchdog(made, 60.0), Heartbeat(made.heartbeat(0))
    assert not stalled(watchdog, clock, 600), "no step yet"
    heartbeat.step()
    assert not stalled(watchdog, clock, 59)
    heartbeat.step()
    assert not stalled(watchdog, clock, 59)
    assert stalled(watchdog, clock, 15) == {0}


def test_a_rank_at_rest_is_never_stalled(spec, clock: FakeClock) -> None:
    made = spec()
    watchdog, heartbeat = Watchdog(made, 60.0), Heartbeat(made.heartbeat(0))
    heartbeat.step()
    assert not stalled(watchdog, clock, 30)
    heartbeat.pause()
    assert not stalled(watchdog, clock, 600)


def test_without_a_limit_no_rank_is_stalled(spec, clock: FakeClock) -> None:
    made = spec()
    watchdog = Watchdog(made, None)
    Heartbeat(made.heartbeat(0)).step()
    assert not stalled(watchdog, clock, 10_000)


def test_time_in_which_the_job_was_suspended_does_not_count(spec, clock: FakeClock) -> None:
    """A suspended job is stopped and continued together with its executor."""
    made = spec()
    watchdog = Watchdog(made, 60.0)
    Heartbeat(made.heartbeat(0)).step()
    assert not stalled(watchdog, clock, 20)
    clock.advance(3600.0)
    assert not watchdog.stalled(clock())
    assert stalled(watchdog, clock, 60) == {0}


def test_each_rank_is_watched(spec, clock: FakeClock) -> None:
    made = spec(devices=3)
    watchdog, pulses = Watchdog(made, 60.0), [Heartbeat(made.heartbeat(rank)) for rank in range(3)]
    for heartbeat in pulses:
        heartbeat.step()
    pulses[2].pause()
    ranks: frozenset[int] = frozenset()
    for _ in range(10):
        pulses[0].step()
        ranks |= stalled(watchdog, clock, 10)
    assert ranks == {1}


def test_remote_ranks_are_not_watched(spec, clock: FakeClock) -> None:
    made = spec(devices=2, num_nodes=2)
    watchdog = Watchdog(made, 60.0)
    for rank in range(4):
        Heartbeat(made.heartbeat(rank)).step()
    assert stalled(watchdog, clock, 100) == {0, 1}


def test_a_stalled_run_is_timed_out_and_the_reason_names_the_limit(tiny_block: TinyBlock) -> None:
    tiny_block.plan("stall", limits=_SHORT)
    tiny_block.run()
    record = tiny_block.record()
    assert record.outcome is Outcome.timed_out
    assert str(record.reason).startswith("no step for 0.5 s")
    assert "raise limits.silence_seconds if one step may take that long" in str(record.reason)
    assert record.wall_seconds < PATIENCE_SECONDS, "it would have hung forever"
    assert not tiny_block.attempt().joinpath("heartbeat-0").exists()


def test_the_log_of_a_stalled_run_has_the_stacks_of_all_its_processes(tiny_block: TinyBlock) -> None:
    tiny_block.plan("stall", devices=2, limits=_SHORT)
    tiny_block.run()
    _, *stacks = tiny_block.log().split("accelsweep: stacks of ")
    assert [section.partition(",")[0] for section in stacks] == ["rank 0", "a child of rank 0", "rank 1"]
    for section in stacks:
        assert "in read_forever" in section
        assert "in behave" in section
    assert "; ranks 0, 1 were in " in str(tiny_block.record().reason)
    assert "in read_forever (tiny_executor.py, line " in str(tiny_block.record().reason)
    assert "(all stacks are at the end of run.log)" in str(tiny_block.record().reason)


def test_a_stalled_run_that_ignores_sigterm_is_killed(tiny_block: TinyBlock) -> None:
    tiny_block.plan("stall_deaf", limits=_SHORT)
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.timed_out
    assert "ignored SIGTERM" in str(tiny_block.record().reason)


def test_a_single_stalled_rank_is_named(tiny_block: TinyBlock) -> None:
    tiny_block.plan("second_rank_stalls", devices=2, limits=_SHORT)
    tiny_block.run()
    assert str(tiny_block.record().reason).startswith("no step of rank 1 for 0.5 s")


@pytest.mark.parametrize("task", ["lively", "long_rest"])
def test_steps_keep_a_run_alive_and_so_does_work_that_has_none(tiny_block: TinyBlock, task: str) -> None:
    tiny_block.plan(task, limits=_SHORT | {"silence_seconds": 1.0})
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.measured


def test_a_run_over_its_time_limit_dumps_its_stacks_and_the_reason_quotes_its_log(tiny_block: TinyBlock) -> None:
    tiny_block.plan("stall", limits=_SHORT | {"silence_seconds": None, "run_seconds": 1.0})
    tiny_block.run()
    assert str(tiny_block.record().reason).startswith("it ran longer than 1 s (limits.run_seconds); it was in ")
    assert "in read_forever (tiny_executor.py, line " in str(tiny_block.record().reason)
    assert str(tiny_block.record().reason).endswith("last lines of its log: the last line before the stall")
    assert "accelsweep: stacks of rank 0" in tiny_block.log()


def test_py_spy_is_used_where_it_is_installed(tiny_block: TinyBlock, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "asked for $*"\n')
    program.chmod(0o755)
    tiny_block.plan("second_rank_stalls", devices=2, limits=_SHORT)
    tiny_block.run(PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "py-spy:\nasked for dump --pid " in tiny_block.log()


_HANGING = """
import time
from accelsweep.workloads.image_models import SmallCNN

class Hanging(SmallCNN):
    def training_step(self, batch, number):
        if number == 8 and self.global_rank == self.trainer.world_size - 1:
            wait_for_a_dead_file_server()
        return super().training_step(batch, number)

def wait_for_a_dead_file_server():
    time.sleep(1000)
"""


@pytest.mark.long  # the tests above end stalled runs; only this one stalls Lightning and a collective
@pytest.mark.real
def test_a_module_that_hangs_alone_or_while_its_peer_waits_in_a_collective_is_ended(tmp_path: Path) -> None:
    settings = [
        {
            "loop": "lightning",
            "devices": devices,
            "launcher": launcher,
            "model": {"_target_": "hanging.Hanging", "width": 8, "depth": 2},
        }
        for devices, launcher in ((1, "spawn"), (2, "fork"))
    ]
    home = tmp_path / "home"
    home.mkdir()
    (home / "hanging.py").write_text(_HANGING)
    folder, block = plan_sweep(home, settings, limits=_SHORT | {"silence_seconds": 5.0})
    alone, together = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS, fresh=True)[0]
    for record in (alone, together):
        assert record.outcome is Outcome.timed_out, record.reason
        assert str(record.reason).startswith("no step for 5 s")
        assert "in wait_for_a_dead_file_server" in (folder.run(record.run) / "run.log").read_text()
    _, waiting, hanging = (folder.run(together.run) / "run.log").read_text().split("accelsweep: stacks of ")
    assert "in wait_for_a_dead_file_server" in hanging
    assert "in backward" in waiting
    assert "in wait_for_a_dead_file_server" not in waiting

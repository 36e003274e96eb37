"""Ranks without a step: when they have been silent for too long, how such a run is ended, and what its log says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_clock import FakeClock
from patience import PATIENCE_SECONDS
from tiny_supervisor import Supervised
from tiny_sweep import measure_sweep, plan_sweep

import accelsweep
from accelsweep.config.sweep_options import Limits
from accelsweep.executor.monitor import Ending, Silence
from accelsweep.executor.outcome import classify
from accelsweep.executor.processes import where_it_stood
from accelsweep.records.run_record import Outcome
from accelsweep.records.sweep_progress import Pulse

_SHORT = {"silence_seconds": 0.5, "retries": 0, "stop_grace_seconds": 0.5}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def watched(silence: Silence, clock: FakeClock, seconds: int) -> frozenset[int]:
    """Look once a second for so many seconds; return who has been silent for too long then."""
    found: frozenset[int] = frozenset()
    for _ in range(seconds):
        clock.advance(1.0)
        found |= silence.broken_by(clock())
    return found


def test_a_rank_is_silent_when_no_step_came_for_the_whole_limit(spec, clock: FakeClock) -> None:
    made = spec()
    silence, pulse = Silence(made, 60.0), Pulse(made.pulse(0))
    assert not watched(silence, clock, 600), "nothing has begun"
    pulse.beat()
    assert not watched(silence, clock, 59)
    pulse.beat()
    assert not watched(silence, clock, 59)
    assert watched(silence, clock, 15) == {0}


def test_a_rank_at_rest_is_never_silent(spec, clock: FakeClock) -> None:
    made = spec()
    silence, pulse = Silence(made, 60.0), Pulse(made.pulse(0))
    pulse.beat()
    assert not watched(silence, clock, 30)
    pulse.rest()
    assert not watched(silence, clock, 600)


def test_without_a_limit_nobody_is_silent(spec, clock: FakeClock) -> None:
    made = spec()
    silence = Silence(made, None)
    Pulse(made.pulse(0)).beat()
    assert not watched(silence, clock, 10_000)


def test_time_in_which_nobody_could_look_is_no_silence(spec, clock: FakeClock) -> None:
    """A suspended job stands still together with its supervisor, and both go on together."""
    made = spec()
    silence = Silence(made, 60.0)
    Pulse(made.pulse(0)).beat()
    assert not watched(silence, clock, 20)
    clock.advance(3600.0)
    assert not silence.broken_by(clock())
    assert watched(silence, clock, 60) == {0}


def test_of_several_ranks_each_is_listened_to(spec, clock: FakeClock) -> None:
    made = spec(devices=3)
    silence, pulses = Silence(made, 60.0), [Pulse(made.pulse(rank)) for rank in range(3)]
    for pulse in pulses:
        pulse.beat()
    pulses[2].rest()
    found: frozenset[int] = frozenset()
    for _ in range(10):
        pulses[0].beat()
        found |= watched(silence, clock, 10)
    assert found == {1}


def test_files_that_another_node_maps_are_not_listened_to(spec, clock: FakeClock) -> None:
    made = spec(devices=2, num_nodes=2)
    silence = Silence(made, 60.0)
    for rank in range(4):
        Pulse(made.pulse(rank)).beat()
    assert watched(silence, clock, 100) == {0, 1}


def test_a_silent_run_is_timed_out_and_names_the_limit(supervised: Supervised) -> None:
    supervised.plan("stall", limits=_SHORT)
    supervised.run()
    record = supervised.record()
    assert record.outcome is Outcome.timed_out
    assert str(record.reason).startswith("no step for 0.5 s")
    assert "raise limits.silence_seconds if one step may take so long" in str(record.reason)
    assert record.wall_seconds < PATIENCE_SECONDS, "left alone it would have gone on for ever"
    assert not supervised.attempt().joinpath("pulse-0").exists()


def test_the_log_of_a_silent_run_has_the_stacks_of_all_its_processes(supervised: Supervised) -> None:
    supervised.plan("stall", devices=2, limits=_SHORT)
    supervised.run()
    _, *stacks = supervised.log().split("accelsweep: stacks of ")
    assert [one.partition(",")[0] for one in stacks] == ["rank 0", "a child of rank 0", "rank 1"]
    for one in stacks:
        assert "in read_for_ever" in one
        assert "in behave" in one
    assert "; ranks 0, 1 were in " in str(supervised.record().reason)
    assert "in read_for_ever (tiny_supervisor.py, line " in str(supervised.record().reason)
    assert "(all stacks are at the end of run.log)" in str(supervised.record().reason)


def test_a_silent_run_that_ignores_sigterm_is_killed(supervised: Supervised) -> None:
    supervised.plan("stall_deaf", limits=_SHORT)
    supervised.run()
    assert supervised.record().outcome is Outcome.timed_out
    assert "ignored SIGTERM" in str(supervised.record().reason)


def test_one_silent_rank_of_several_is_named(supervised: Supervised) -> None:
    supervised.plan("second_rank_stalls", devices=2, limits=_SHORT)
    supervised.run()
    assert str(supervised.record().reason).startswith("no step of rank 1 for 0.5 s")


TORCH, LIGHTNING = "/venv/lib/python3.11/site-packages/torch", "/venv/lib/python3.11/site-packages/lightning/pytorch"
OURS = str(Path(accelsweep.__file__).parent)
BEGAN = (f"{OURS}/rank/rank.py:56 run_rank", "/venv/bin/accelsweep:8 <module>")
FETCHES = (
    "/usr/lib/python3.11/selectors.py:415 select",
    "/usr/lib/python3.11/multiprocessing/queues.py:113 get",
    f"{TORCH}/utils/data/dataloader.py:1297 _try_get_data",
    f"{TORCH}/utils/data/dataloader.py:741 __next__",
)


def stack(who: str, *calls: str, thread: str = "Current thread") -> list[str]:
    """Return what a process prints: the innermost call first, as `file:line function`."""
    head = [f"accelsweep: stacks of {who}, process 7, sleeping in futex_wait"] if who else []
    parts = [(call.rpartition(":")[0], *call.rpartition(":")[2].split(" ")) for call in calls]
    frames = [f'  File "{file}", line {line} in {function}' for file, line, function in parts]
    return [*head, f"{thread} 0x00007fce847f4b80 (most recent call first):", *frames, ""]


WORKER = stack(
    "a child of rank 0",
    "/usr/lib/python3.11/logging/__init__.py:922 acquire",
    "/home/me/own.py:12 __getitem__",
    f"{TORCH}/utils/data/_utils/worker.py:349 _worker_loop",
    *BEGAN,
)
BACKWARD = stack(
    "rank 1", f"{TORCH}/autograd/graph.py:829 _engine_run_backward", f"{LIGHTNING}/x.py:9 backward", *BEGAN
)
BARRIER = (f"{TORCH}/distributed/distributed_c10d.py:4635 barrier", f"{OURS}/measure/window.py:90 begin", *BEGAN)
HANGS = ("/usr/lib/python3.11/socket.py:718 readinto", "/home/me/io.py:3 read", "/home/me/own.py:30 training_step")


@pytest.mark.parametrize(
    ("lines", "steps", "told"),
    [
        (
            [*stack("rank 0", *FETCHES, f"{OURS}/rank/loops/raw_data.py:66 endless", *BEGAN), *WORKER, *WORKER],
            0,
            "it was waiting for the first training batch of 2 workers, standing in __getitem__ (own.py, line 12)",
        ),
        (
            stack("rank 0", *FETCHES, f"{LIGHTNING}/loops/evaluation_loop.py:150 run", *BEGAN),
            40,
            "it was waiting for the next validation batch of its workers",
        ),
        (
            stack("rank 0", *FETCHES, f"{LIGHTNING}/loops/training_epoch_loop.py:150 advance", *BEGAN),
            40,
            "it was waiting for the next training batch of its workers",
        ),
        (
            [*stack("rank 0", *HANGS, *BEGAN), *BACKWARD],
            3,
            "rank 0 was in training_step, in read (io.py, line 3); "
            "rank 1 was in the backward pass, where ranks wait for each other's gradients",
        ),
        (
            [*stack("rank 0", *BARRIER), *stack("rank 1", *BARRIER)],
            0,
            "ranks 0, 1 were waiting for the other ranks in barrier",
        ),
        (
            [
                *stack("rank 0", "/usr/lib/python3.11/threading.py:331 wait", thread="Thread"),
                *stack("", *HANGS, *BEGAN),
            ],
            0,
            "it was in training_step, in read (io.py, line 3)",
        ),
        (["said before", *stack("rank 0")], 0, ""),
    ],
    ids=["first batch", "validation", "next batch", "two ranks", "barrier", "several threads", "nothing said"],
)
def test_where_each_rank_stood_is_told_from_its_stack(tmp_path: Path, lines, steps, told, last_line) -> None:
    (tmp_path / "run.log").write_text("\n".join(lines))
    stood = where_it_stood(tmp_path / "run.log", steps)
    assert stood == told
    limit = Ending((-15,), "time_limit", frozenset(), frozenset({0}), False, 0, 1.0, stacks=True)
    reason = classify(limit, {}, "", Limits(run_seconds=60.0), stood).reason
    assert reason == "it ran longer than 60 s (limits.run_seconds)" + (f"; {told}" if told else "")
    last_line("a run that ends by time", str(reason))


@pytest.mark.parametrize("task", ["lively", "long_rest"])
def test_steps_keep_a_run_alive_and_work_without_steps_is_let_be(supervised: Supervised, task: str) -> None:
    supervised.plan(task, limits=_SHORT | {"silence_seconds": 1.0})
    supervised.run()
    assert supervised.record().outcome is Outcome.measured


def test_a_run_over_its_time_limit_shows_its_stacks_and_quotes_what_it_said(supervised: Supervised) -> None:
    supervised.plan("stall", limits=_SHORT | {"silence_seconds": None, "run_seconds": 1.0})
    supervised.run()
    assert str(supervised.record().reason).startswith("it ran longer than 1 s (limits.run_seconds); it was in ")
    assert "in read_for_ever (tiny_supervisor.py, line " in str(supervised.record().reason)
    assert str(supervised.record().reason).endswith("last lines of its log: the last line before the silence")
    assert "accelsweep: stacks of rank 0" in supervised.log()


def test_py_spy_is_asked_too_where_it_is_installed(supervised: Supervised, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "asked for $*"\n')
    program.chmod(0o755)
    supervised.plan("second_rank_stalls", devices=2, limits=_SHORT)
    supervised.run(PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "py-spy:\nasked for dump --pid " in supervised.log()


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


@pytest.mark.long  # the tests above end silent runs; only here Lightning and a collective are silent
@pytest.mark.real
def test_a_module_that_hangs_alone_or_while_its_peer_waits_in_an_exchange_is_ended(tmp_path: Path) -> None:
    cells = [
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
    folder, block = plan_sweep(home, cells, limits=_SHORT | {"silence_seconds": 5.0})
    alone, together = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS, fresh=True)[0]
    for record in (alone, together):
        assert record.outcome is Outcome.timed_out, record.reason
        assert str(record.reason).startswith("no step for 5 s")
        assert "in wait_for_a_dead_file_server" in (folder.run(record.run) / "run.log").read_text()
    _, waiting, hanging = (folder.run(together.run) / "run.log").read_text().split("accelsweep: stacks of ")
    assert "in wait_for_a_dead_file_server" in hanging
    assert "in backward" in waiting
    assert "in wait_for_a_dead_file_server" not in waiting

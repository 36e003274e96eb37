"""Waiting for a quiet machine: only if something suggests that others are busy, and never longer than its limit."""

from __future__ import annotations

import pytest
from tiny_sweep import config_with

from accelsweep.executor import quiet_wait
from accelsweep.executor.quiet_wait import QuietWait, cores_needed, others_at_end
from accelsweep.ipc import Interrupted

BUSY = "other processes keep 1.4 of 2 cores busy now (stress with id 7)"


class Machine:
    """A machine on which others are busy for some looks, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_looks: int) -> None:
        self.busy_looks, self.looks, self.seconds = busy_looks, 0, 0.0
        monkeypatch.setattr(quiet_wait, "busy_now", self.look)
        monkeypatch.setattr(quiet_wait.time, "monotonic", lambda: self.seconds)

    def look(self, seconds: float, *_: object) -> list[str]:
        self.looks, self.seconds = self.looks + 1, self.seconds + seconds
        return [BUSY] if self.looks <= self.busy_looks else []

    def pause(self, seconds: float) -> bool:
        self.seconds += seconds
        return False


def test_a_run_waits_until_others_are_quiet_and_says_what_they_do_once(monkeypatch):
    machine, told = Machine(monkeypatch, busy_looks=3), []
    waited = QuietWait(20.0, machine.pause).wait(2.0, (), told.append)
    assert (waited, told) == (machine.seconds, [BUSY])
    assert 1.0 < waited < 3.0


def test_a_wait_ends_at_its_limit_and_a_block_stops_waiting_after_several_in_vain(monkeypatch):
    machine = Machine(monkeypatch, busy_looks=10**6)
    quiet = QuietWait(20.0, machine.pause)
    waits = [quiet.wait(2.0, (), lambda _: None) for _ in range(quiet_wait.MAX_VAIN_WAITS + 2)]
    assert all(20.0 <= waited < 21.0 for waited in waits[: quiet_wait.MAX_VAIN_WAITS])
    assert waits[quiet_wait.MAX_VAIN_WAITS :] == [0.0, 0.0]


def test_a_quiet_run_is_followed_at_once_by_the_next(monkeypatch):
    machine = Machine(monkeypatch, busy_looks=0)
    quiet = QuietWait(20.0, machine.pause)
    assert quiet.wait(2.0, (), lambda _: None) == 0.0
    quiet.observe([], None)
    quiet.wait(2.0, (), lambda _: None)
    assert machine.looks == 1


@pytest.mark.parametrize(
    ("host_cores", "disturbance", "looks"), [(2.0, None, 1), (1.0, None, 0), (1.0, "other processes ...", 1)]
)
def test_what_was_sampled_at_a_runs_end_or_disturbed_it_makes_the_next_one_look(
    monkeypatch, host_cores, disturbance, looks
):
    machine = Machine(monkeypatch, busy_looks=0)
    quiet = QuietWait(20.0, machine.pause)
    quiet.observe([{"seconds": 1.0, "host_cpu_cores": host_cores, "rank0_cpu_cores": 1.0}], disturbance)
    quiet.wait(2.0, (), lambda _: None)
    assert machine.looks == looks


def test_a_signal_ends_a_wait(monkeypatch):
    Machine(monkeypatch, busy_looks=9)
    with pytest.raises(Interrupted):
        QuietWait(20.0, lambda _: True).wait(2.0, (), lambda _: None)


def test_a_limit_of_zero_never_looks(monkeypatch):
    machine = Machine(monkeypatch, busy_looks=9)
    assert QuietWait(0.0, machine.pause).wait(2.0, (), lambda _: None) == 0.0
    assert machine.looks == 0


def test_others_at_a_runs_end_are_what_the_host_used_beyond_the_ranks_in_the_last_second():
    rows = [
        {"seconds": 0.0, "host_cpu_cores": 9.0, "rank0_cpu_cores": 0.0},
        {"seconds": 2.5, "host_cpu_cores": 2.0, "rank0_cpu_cores": 1.0, "rank1_cpu_cores": 0.5},
        {"seconds": 2.75, "host_cpu_cores": 3.0, "rank0_cpu_cores": 1.0, "rank1_cpu_cores": 0.5},
        {"seconds": 3.0, "host_cpu_cores": 4.0},
    ]
    assert others_at_end(rows) == pytest.approx(1.0)
    assert others_at_end(rows[-1:]) is None


@pytest.mark.parametrize(
    ("accelerator", "devices", "threads", "cores"),
    [("cpu", 1, None, 8), ("cpu", 2, 3, 6), ("cuda", 2, None, 2), ("cuda", 4, 4, 8)],
)
def test_a_run_needs_its_threads_on_each_of_its_ranks_or_all_cores_of_a_cpu(
    monkeypatch, accelerator, devices, threads, cores
):
    monkeypatch.setattr(quiet_wait, "allowed_cores", lambda: set(range(8)))
    assert cores_needed(config_with(accelerator=accelerator, devices=devices), threads) == cores

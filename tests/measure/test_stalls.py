"""Stalls: which steps count, and whether our own processes were working meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from polling import until

from accelsweep.devices.clock import clock_gap
from accelsweep.measure import run_doubts, stalls
from accelsweep.measure.stalls import IDLE_CORES, CpuTimer, RankStalls, Stall, all_idle, find_stalls

STEADY = [0.002] * 750


def with_stalls(*stalls, steps=STEADY):
    changed = list(steps)
    for step, seconds in stalls:
        changed[step] += seconds
    return changed


def found(steps, tail=0.0, **options):
    return [(one.begin, round(one.seconds, 3)) for one in find_stalls(steps, sum(steps) + tail, **options)]


def test_one_giant_step_is_a_stall_wherever_it_falls():
    assert found(STEADY) == []
    for step in (0, 400, 749):
        assert found(with_stalls((step, 30.0))) == [(step, 30.0)]


def test_work_that_waits_for_the_device_after_the_last_step_can_stall_too():
    assert found(STEADY, tail=30.0) == [(750, 30.0)]
    assert found(STEADY, tail=0.01) == []


def test_a_stall_that_could_change_a_verdict_counts():
    assert found(with_stalls((10, 3.0), (700, 2.0))) == [(10, 3.0), (700, 2.0)]
    assert found(with_stalls((10, 0.1))) == [], "a hiccup of a fifteenth of a short window is noise"
    short = [0.002] * 50
    assert found(with_stalls((10, 0.09), steps=short)) == [], "any system has that now and then"
    assert found(with_stalls((10, 0.2), steps=short)) == [(10, 0.2)]
    long = [0.002] * 25_000  # 50 s
    assert found(with_stalls((10, 1.5), steps=long)) == [(10, 1.5)]
    assert found(with_stalls((10, 0.9), steps=long)) == []


def test_an_optimiser_step_that_is_the_longest_of_its_batches_is_no_stall():
    batches = ([0.01] * 7 + [0.5]) * 6
    assert found(batches, multiple_of=8) == []
    assert len(found(batches)) == 6
    assert found(with_stalls((20, 5.0), steps=batches), multiple_of=8) == [(16, 5.0)]


def test_a_restart_of_the_data_has_a_usual_length_of_its_own():
    steps = [(0.5 if step % 100 == 0 else 0.002) for step in range(500)]
    assert found(steps, restarts=[0, 100, 200, 300, 400]) == []
    stalled = with_stalls((200, 30.0), steps=steps)
    assert found(stalled, restarts=[0, 100, 200, 300, 400]) == [(200, 30.0)]


def test_a_window_of_two_steps_has_no_stalls():
    assert found([1.0, 30.0]) == []
    assert found([1.0, 30.0, 1.0]) == [(1, 29.0)]


@pytest.fixture
def machine(monkeypatch, clock):
    """The clocks of a machine on which this process and one child use `cores` while `advance` lets time pass."""

    class Machine:
        used = dict.fromkeys(("own", 4711), 0.0)

        def advance(self, seconds, own=1.0, child=0.0):
            clock.advance(seconds)
            self.used["own"] += own * seconds
            self.used[4711] += child * seconds

    made = Machine()
    monkeypatch.setattr(stalls.time, "monotonic", clock)
    monkeypatch.setattr(stalls.time, "process_time", lambda: made.used["own"])
    monkeypatch.setattr(stalls, "_cpu_seconds", lambda process: made.used[process])
    monkeypatch.setattr(stalls, "children", lambda: frozenset({4711}))
    return made


@pytest.mark.parametrize(
    ("cores", "used"),
    [({"own": 0.0}, 0.0), ({"own": 1.0}, 1.0), ({"own": 0.0, "child": 1.0}, 1.0), ({"own": 0.01}, 0.01)],
    ids=["waits", "computes", "its loader computes", "looks now and then"],
)
@pytest.mark.parametrize("step_seconds", [0.0005, 0.05], ids=["steps shorter than looks", "longer ones"])
def test_the_cores_of_a_stall_are_those_beyond_the_usual_use(machine, step_seconds, cores, used):
    """The steps around it keep two cores busy, which is not the stall's use."""
    work = CpuTimer()
    work.start()
    for step in range(200):
        machine.advance(step_seconds, own=1.5, child=0.5)
        if step == 100:
            machine.advance(3.0, **cores)
        work.step_done(step + 1)
    work.stop()
    assert work.cores_during(Stall(100, 101, 3.0)) == pytest.approx(used, abs=0.002)
    assert work.summarise([Stall(100, 101, 3.0)]).idle == (used < IDLE_CORES)


def test_the_cores_of_a_stall_after_the_last_step_are_known(machine):
    work = CpuTimer()
    work.start()
    for step in range(20):
        machine.advance(0.05)
        work.step_done(step + 1)
    machine.advance(5.0, own=0.0)
    work.stop()
    assert work.summarise([Stall(20, 20, 5.0)]) == RankStalls(5.0, 1, idle=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux provides a clock per process")
def test_the_clock_of_a_child_goes_on_while_it_computes_and_stands_while_it_is_stopped():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            until(lambda: stalls._cpu_seconds(child.pid) > 0.1)
            child.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            stopped = stalls._cpu_seconds(child.pid)
            time.sleep(0.2)
            assert stalls._cpu_seconds(child.pid) == stopped
        finally:
            child.kill()


@pytest.fixture
def stall():
    """Do 20 steps of 10 ms, one of them with `act`; return the cores of the stall."""

    def go(act):
        work = CpuTimer()
        work.start()
        for step in range(20):
            time.sleep(0.01)
            if step == 10:
                act()
            work.step_done(step + 1)
        work.stop()
        return work.cores_during(Stall(10, 11, 0.01))

    return go


def test_the_cores_of_a_stall_are_unknown_if_children_start_or_end(stall):
    children = []
    try:
        assert stall(lambda: children.append(subprocess.Popen(["sleep", "60"]))) is None
    finally:
        children[0].kill()
        children[0].wait()


def test_the_cores_of_a_stall_are_unknown_if_only_the_device_was_slow():
    work = CpuTimer()
    work.start()
    for step in range(20):
        time.sleep(0.001)
        work.step_done(step + 1)
    work.stop()
    assert work.cores_during(Stall(10, 11, 5.0)) is None


STILL, BUSY = RankStalls(30.0, 1, idle=True), RankStalls(30.0, 1, idle=False)


def test_a_stall_in_which_all_ranks_were_idle_disturbs_the_run():
    doubt = run_doubts.stalled([STILL, STILL], 31.5, "the rate is 2,315 samples/s", "the window")
    assert (doubt.code, doubt.disturbing) == ("processes_stopped", True)
    assert "30 s (95% of the window)" in doubt.message
    assert doubt.message.endswith("without that the rate is 2,315 samples/s")


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([BUSY], "1 step took 30 s (95% of the window) longer than usual;"),
        ([STILL, BUSY], "longer than usual;"),
        ([STILL, RankStalls()], "on 1 of 2 ranks;"),
        ([STILL, RankStalls(2.0, 1, idle=True)], "longer than usual;"),
        ([RankStalls(30.0, 3, idle=False)], "3 steps took 30 s"),
    ],
    ids=["computed", "one rank computed", "one rank alone", "others hardly waited", "several"],
)
def test_a_stall_that_the_run_may_have_caused_is_only_doubted(ranks, words):
    doubt = run_doubts.stalled(ranks, 31.5, "the rate is 2,315 samples/s", "the window")
    assert (doubt.code, doubt.disturbing) == ("stall", False)
    assert words in doubt.message


def test_recurrent_stalls_do_not_count_as_idle(machine):
    work = CpuTimer()
    work.start()
    for step in range(5):
        machine.advance(0.03, own=0.0)
        work.step_done(step + 1)
    work.stop()
    waits = [Stall(step, step + 1, 0.02) for step in range(5)]
    assert work.summarise(waits[:3]).idle
    assert not work.summarise(waits[:4]).idle
    assert not work.summarise([]).idle
    assert not all_idle([work.summarise([])])


def test_no_stall_is_no_doubt():
    assert run_doubts.stalled([RankStalls(), RankStalls()], 1.5, "", "the window") is None


@pytest.mark.parametrize(
    ("passed", "gap"),
    [
        ({"wall": 41.5, "monotonic": 1.5, "boot_time": 41.5}, 40.0),
        ({"wall": 41.5, "monotonic": 1.5}, 40.0),
        ({"wall": 1.5, "monotonic": 1.5, "boot_time": 41.5}, 40.0),
        ({"wall": -3598.5, "monotonic": 1.5, "boot_time": 1.5}, 0.0),
        ({"wall": 1.5001, "monotonic": 1.5, "boot_time": 1.5}, 0.0),
    ],
    ids=["slept", "paused, no other clock", "slept, the wall clock not yet right", "set back", "slewed"],
)
def test_a_clock_gap_is_the_time_missing_from_durations(passed, gap):
    assert clock_gap(passed) == pytest.approx(gap, abs=0.001)
    doubt = run_doubts.clock_gap(clock_gap(passed))
    assert (doubt.code if doubt else None) == ("clock_gap" if gap else None)
    assert doubt is None or ("40 s passed" in doubt.message and doubt.disturbing)


def test_the_clock_of_another_process_is_read_and_one_that_is_gone_is_unknown():
    with subprocess.Popen(["sleep", "60"]) as child:
        work = CpuTimer()
        work.start()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        time.sleep(0.02)
        work.step_done(1)
        work.stop()
    assert work.cores_during(Stall(0, 1, 0.02)) is None

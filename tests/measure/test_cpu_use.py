"""Whose processor time is counted: that of the cores that we may use, by their numbers."""

from __future__ import annotations

import sys

import pytest

from accelsweep.devices import host
from accelsweep.devices.host import ProcessorTimes, processor_times
from accelsweep.measure import machine_state, run_doubts
from accelsweep.measure.machine_state import CpuUse, busy_seconds, foreign_cores


@pytest.fixture
def stat(tmp_path, monkeypatch):
    """Return a function that writes the kernel's table: the hundredths of a second that each core was busy."""
    if sys.platform != "linux":
        pytest.skip("/proc/stat is Linux's")

    def write(hundredths):
        rows = {"cpu": sum(hundredths.values()), **{f"cpu{core}": busy for core, busy in hundredths.items()}}
        lines = [f"{name} {busy} 0 0 1000 0 0 0 0 0 0" for name, busy in rows.items()]
        (tmp_path / "stat").write_text("\n".join([*lines, "ctxt 1", ""]))

    monkeypatch.setattr(host, "PROC", tmp_path)
    monkeypatch.setattr(host.os, "sysconf", lambda _: 100)
    return write


def test_a_core_is_known_by_its_number_although_others_are_switched_off(stat):
    stat({0: 100, 4: 200, 8: 4000})
    assert processor_times().by_core == {0: 1.0, 4: 2.0, 8: 40.0}
    assert busy_seconds(processor_times(), {0, 4}) == 3.0


def test_a_process_that_may_use_all_cores_sees_the_whole_machine(stat):
    stat({0: 100, 1: 200})
    assert busy_seconds(processor_times(), {0, 1}) == 3.0


def test_a_container_that_numbers_its_cores_anew_shows_ours(stat):
    stat({0: 100, 1: 200})
    assert busy_seconds(processor_times(), {6, 7}) == busy_seconds(processor_times(), {1, 2}) == 3.0


def test_a_shared_machine_whose_other_cores_are_busy_is_no_doubt(monkeypatch):
    """Eight cores of 128 are ours, two of them busy with us; on the rest others keep a hundred busy."""
    ours, seconds = set(range(8)), iter([0.0, 10.0])
    by_core = dict.fromkeys(range(128), 0.0)
    monkeypatch.setattr(machine_state, "allowed_cores", lambda: ours)
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: ours)
    monkeypatch.setattr(host, "processor_times", lambda: ProcessorTimes(sum(by_core.values()), dict(by_core)))
    monkeypatch.setattr(host, "processor_seconds", lambda: by_core[0] + by_core[1])
    use = CpuUse(clock=lambda: next(seconds))
    use.start()
    by_core |= dict.fromkeys((0, 1, *range(20, 120)), 10.0)
    use.stop()
    assert foreign_cores([use.reading]) == 0.0
    assert run_doubts.busy_cpu(foreign_cores([use.reading]), use.reading["ours"] / 10.0) is None


def test_what_others_do_on_our_cores_is_doubted_also_on_a_shared_machine(monkeypatch):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: {0, 1})
    busy = busy_seconds(ProcessorTimes(20.0, {0: 10.0, 1: 10.0, 2: 0.0, 3: 0.0}), {0, 1})
    assert run_doubts.busy_cpu(foreign_cores([{"seconds": 10.0, "ours": 15.0, "busy": busy}]), 1.5).code == "busy_cpu"

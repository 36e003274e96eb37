"""Readings at regular intervals become a table, and its summary over the window."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from accelsweep.devices.device_kind import TelemetryUnavailable
from accelsweep.measure.series import HostReader, RankReader, Reading, Sampling, summaries
from accelsweep.metrics import SAMPLED, STATISTICS, metrics, quantity_of


class Scripted:
    """A reader that returns these readings in turn; None stands for a driver that does not answer."""

    def __init__(self, prefix: str, *readings: Reading | None) -> None:
        self.prefix, self._readings = prefix, iter(readings)

    def read(self) -> Reading:
        reading = next(self._readings)
        if reading is None:
            raise TelemetryUnavailable("the driver is gone")
        return reading


def test_counters_become_rates_since_the_last_reading_and_gauges_stay() -> None:
    readings = [Reading({"celsius": 40.0 + number}, {"cpu_cores": total}) for number, total in enumerate((5, 6, 9))]
    sampling = Sampling([Scripted("gpu0", *readings)])
    rows = [sampling.sample(now) for now in (10.0, 10.5, 11.5)]
    assert rows == [
        {"seconds": 10.0, "gpu0_celsius": 40.0},
        {"seconds": 10.5, "gpu0_celsius": 41.0, "gpu0_cpu_cores": 2.0},
        {"seconds": 11.5, "gpu0_celsius": 42.0, "gpu0_cpu_cores": 3.0},
    ]


def test_a_driver_that_vanishes_leaves_a_gap_with_its_reason_and_no_rate_across_it() -> None:
    readings = [
        Reading({}, {"power_watts": 0}),
        None,
        Reading({}, {"power_watts": 900}),
        Reading({}, {"power_watts": 950}),
    ]
    sampling = Sampling([Scripted("package", *readings)])
    rows = [sampling.sample(float(now)) for now in range(4)]
    assert rows == [{"seconds": 0.0}, {"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 3.0, "package_power_watts": 50.0}]
    assert sampling.reasons == {"package": "the driver is gone"}


def test_the_summary_covers_the_window_alone_and_all_devices_together() -> None:
    rows = [
        {"seconds": float(number), "gpu0_power_watts": 100.0 * (3 <= number <= 6), "gpu1_power_watts": 200.0}
        for number in range(10)
    ]
    found = summaries(rows, 2.0, 6.0)
    assert found["gpu_power_watts_mean"].value == 150.0
    assert found["gpu_power_watts_max"].value == 200.0
    assert found["gpu_power_watts_p95"].value == 200.0
    assert found["gpu_power_watts_mean"].scope == "8 readings in the window"
    assert summaries(rows, 20.0, 30.0) == {}


def test_a_row_is_assigned_to_the_window_by_the_row_before_of_its_own_node() -> None:
    rows = [{"seconds": 0.0, "since": -1.0, "host_cpu_cores": 1.0}, {"seconds": 2.0, "host1_cpu_cores": 1.0}]
    rows.append({"seconds": 2.1, "since": 0.0, "host_cpu_cores": 9.0})
    assert summaries(rows, 1.0, 3.0)["host_cpu_cores_mean"].scope == "2 readings in the window"
    assert summaries(rows, 1.5, 3.0) == {}


def test_every_summary_is_a_listed_metric_in_its_unit() -> None:
    rows = [{"seconds": float(number), **{f"{name}": 1.0 for name in SAMPLED}} for number in range(3)]
    found = summaries(rows, 0.0, 3.0)
    assert set(found) == {f"{name}_{statistic}" for name in SAMPLED for statistic in STATISTICS}
    assert {name: metric.unit for name, metric in found.items()} == {name: metrics()[name].unit for name in found}


def test_a_column_is_named_after_its_quantity_and_number() -> None:
    assert quantity_of("gpu12_power_watts") == "gpu_power_watts"
    assert quantity_of("rank0_rss_bytes") == "rank_rss_bytes"
    assert quantity_of("host_disk_bytes_per_second") == "host_disk_bytes_per_second"


@pytest.mark.real
def test_the_host_reports_what_it_has() -> None:
    reading = HostReader().read()
    assert 0 < reading.gauges["memory_bytes"] < psutil.virtual_memory().total
    assert reading.counters["cpu_cores"] > 0


@pytest.mark.real
def test_a_rank_reports_its_processor_time_and_memory_until_it_has_ended() -> None:
    sampling = Sampling([RankReader(0, os.getpid()), RankReader(1, 2**22 - 3)])
    began = time.process_time()
    first = sampling.sample(0.0)
    while time.process_time() - began < 0.2:
        pass
    second = sampling.sample(0.2)
    assert first["rank0_rss_bytes"] == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    assert second["rank0_cpu_cores"] == pytest.approx(1.0, abs=0.15)
    assert sampling.reasons == {"rank1": "the process has ended"}


@pytest.mark.real
def test_a_rank_that_runs_a_command_reports_that_of_its_descendants_too() -> None:
    busy = (
        "import time; kept = b'.' * 10**8; print(len(kept), flush=True)\nwhile time.process_time() < 0.5: pass\ninput()"
    )
    alone, whole = RankReader(0, os.getpid()), RankReader(0, os.getpid(), descendants=True)
    before = whole.read().counters["cpu_cores"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", busy], **pipes) as command:
        assert command.stdout is not None
        command.stdout.readline()
        assert whole.read().gauges["rss_bytes"] - alone.read().gauges["rss_bytes"] > 1e8
        command.communicate("\n")
    used = whole.read().counters["cpu_cores"] - before
    assert used > 0.45, "the time of an ended process is kept; the system counts hundredths and drops the rest"


def test_a_command_that_ends_during_a_reading_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The descendants are looked for among all processes, and only then is the process itself looked at."""

    def ended(process: psutil.Process, **_options: bool) -> list[psutil.Process]:
        raise psutil.NoSuchProcess(process.pid)

    reader = RankReader(0, os.getpid(), descendants=True)
    monkeypatch.setattr(psutil.Process, "children", ended)
    with pytest.raises(TelemetryUnavailable, match="the process has ended"):
        reader.read()

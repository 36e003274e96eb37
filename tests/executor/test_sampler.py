"""The process that samples a run: it ends with the run, and what it cannot read leaves a gap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from polling import PATIENCE_SECONDS

import accelsweep.executor.sampler
from accelsweep.executor.device_lease import NO_LEASE, Lease
from accelsweep.executor.sampler import Sampler, Samples, append_samples, read_samples, samples_path
from accelsweep.metrics import quantity_of
from accelsweep.testing.simulated_device import SIMULATED_VARIABLE, ProcessUsage, Spec

pytestmark = pytest.mark.real

SIMULATED = Lease("simulated", ("0",), ())


@contextmanager
def sampled(
    folder: Path, seconds: float | None = 0.02, lease: Lease = NO_LEASE, node: int = 0
) -> Iterator[Callable[[dict[int, int]], None]]:
    """Sample one run with a sampler of its own."""
    with Sampler() as sampler, sampler.sample(folder, seconds, lease.accelerator, lease, node) as watch:
        yield watch


def test_rows_come_at_the_interval_with_the_ranks_that_are_named(tmp_path: Path) -> None:
    with sampled(tmp_path) as watch:
        time.sleep(0.1)
        watch({0: os.getpid()})
        time.sleep(0.2)
    samples = read_samples(tmp_path)
    rows = samples.rows
    assert 4 <= len(rows) <= 17, "a busy machine may skip some"
    gaps = [after["seconds"] - before["seconds"] for before, after in pairwise(rows[:-1])]
    assert min(gaps) > 0.0
    assert sorted(gaps)[len(gaps) // 2] > 0.015
    assert "rank0_rss_bytes" not in rows[0]
    assert rows[-1]["rank0_rss_bytes"] > 1e7
    assert rows[-1]["host_memory_bytes"] > 1e7
    assert 0 < samples.cpu_seconds < 5


def test_loading_the_drivers_library_is_no_cost_of_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def slow_to_load(_: str) -> Iterator[None]:
        while time.process_time() < 1.0:
            pass
        yield

    monkeypatch.setattr(accelsweep.executor.sampler, "telemetry_session", slow_to_load)
    with sampled(tmp_path):
        time.sleep(1.2)
    cpu_seconds = read_samples(tmp_path).cpu_seconds
    assert cpu_seconds is not None
    assert 0 < cpu_seconds < 0.9


def test_no_interval_means_no_process_and_no_file(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with sampled(tmp_path, None) as watch:
        watch({0: os.getpid()})
        assert psutil.Process().children() == before
    assert read_samples(tmp_path) == Samples()


def test_a_sampler_that_was_killed_disturbs_nobody_and_its_rows_remain(tmp_path: Path) -> None:
    with Sampler() as sampler, sampler.sample(tmp_path, 0.005, "cpu", NO_LEASE) as watch:
        time.sleep(0.4)
        kill(sampler)
        watch({0: os.getpid()})
    samples = read_samples(tmp_path)
    assert len(samples.rows) >= 20
    assert samples.cpu_seconds is None


def kill(sampler: Sampler) -> None:
    (child,) = (each for each in psutil.Process().children() if each.pid == sampler.process)
    os.kill(child.pid, signal.SIGKILL)
    psutil.wait_procs([child], timeout=PATIENCE_SECONDS)


def test_one_process_samples_one_run_after_another_and_another_one_if_it_was_killed(tmp_path: Path) -> None:
    processes = []
    with Sampler() as sampler:
        for run in range(4):
            (tmp_path / str(run)).mkdir()
            with sampler.sample(tmp_path / str(run), 0.02, "cpu", NO_LEASE) as watch:
                watch({run: os.getpid()})
                time.sleep(0.1)
                processes.append(sampler.process)
                if run == 1:
                    kill(sampler)
    assert processes[0] == processes[1] != processes[2] == processes[3]
    assert not psutil.pid_exists(processes[3]), "it ends with the with-block"
    for run in range(4):
        samples = read_samples(tmp_path / str(run))
        ranks = {column.partition("_")[0] for row in samples.rows for column in row if column.startswith("rank")}
        if run == 1:
            assert samples.cpu_seconds is None
        else:
            assert ranks == {f"rank{run}"}, "its own and no other run's"
            assert samples.cpu_seconds > 0


def test_a_driver_that_hangs_does_not_hold_up_a_runs_end_nor_keep_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def hanging(_: str) -> Iterator[None]:
        time.sleep(2 * PATIENCE_SECONDS)
        yield

    monkeypatch.setattr(accelsweep.executor.sampler, "telemetry_session", hanging)
    monkeypatch.setattr(accelsweep.executor.sampler, "_PATIENCE_SECONDS", 0.5)
    reader, leased = os.pipe()
    with Sampler() as sampler:
        with sampler.sample(tmp_path, 0.02, "cpu", Lease("cpu", (), (leased,))):
            os.close(leased)
            assert os.read(reader, 1) == b"", "nobody else holds it"
            before, hanging_process = time.monotonic(), sampler.process
        assert time.monotonic() - before < PATIENCE_SECONDS
        assert not psutil.pid_exists(hanging_process)
        assert sampler.process is None
    os.close(reader)


def test_devices_that_no_driver_knows_leave_no_columns_and_the_machine_is_sampled(tmp_path: Path) -> None:
    with sampled(tmp_path, lease=Lease("cuda", ("0",), ())):
        time.sleep(0.1)
    samples = read_samples(tmp_path)
    rows = samples.rows
    assert rows
    assert not any(column.startswith("gpu") for row in rows for column in row)
    assert all("host_memory_bytes" in row for row in rows)
    powered = any("package_power_watts" in row for row in rows)
    assert powered is ("package" not in samples.reasons), "what is missing has its reason"


@pytest.fixture
def simulated_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProcessUsage]:
    """A function that creates a simulated device, and returns what this process uses of it."""
    monkeypatch.setenv(SIMULATED_VARIABLE, str(tmp_path / "device"))

    def create(**spec: Any) -> ProcessUsage:
        Spec(**spec).write(tmp_path / "device")
        return ProcessUsage(tmp_path / "device")

    return create


def busy_for(usage: ProcessUsage, seconds: float) -> float:
    """Keep the device busy for so long from now on; return the time at which that ends."""
    usage.use.busy += seconds
    usage.use.free_at = time.perf_counter() + seconds
    usage.write()
    return usage.use.free_at


def test_programmed_power_utilisation_memory_and_throttling_are_found_within_one_sample(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    usage = simulated_device(watts_idle=60.0, watts_busy=310.0, watts_limit=310.0, mhz=1500, celsius=71)
    usage.use.bytes = 3 << 20
    with sampled(tmp_path, lease=SIMULATED) as watch:
        watch({0: os.getpid()})
        time.sleep(0.2)
        began = time.perf_counter()
        ended = busy_for(usage, 0.3)
        time.sleep(0.5)
    rows = read_samples(tmp_path).rows
    longest = max(after["seconds"] - before["seconds"] for before, after in pairwise(rows))
    busy = [row for row in rows if began + longest < row["seconds"] < ended - longest]
    idle = [row for row in rows if not began - longest <= row["seconds"] <= ended + longest]
    assert len(busy) >= 3
    assert len(idle) >= 5
    truth = {"gpu0_memory_bytes": 3 << 20, "gpu0_foreign_processes": 0}
    truth |= {"gpu0_celsius": 71, "gpu0_sm_mhz": 1500, "gpu0_memory_mhz": 1500, "gpu0_power_limit_watts": 310}
    for row in busy:
        expected = truth | {"gpu0_utilisation": 1, "gpu0_power_watts": 310, "gpu0_power_capped": 1, "gpu0_throttled": 0}
        assert expected.items() <= row.items()
    for row in idle:
        assert (row["gpu0_utilisation"], row["gpu0_power_watts"], row["gpu0_power_capped"]) == (0, 60, 0)


def test_throttling_by_heat_is_the_share_of_time_that_the_driver_counts(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    usage = simulated_device(throttled_after=0.0, throttle=2.0, mhz=1500)
    with sampled(tmp_path, lease=SIMULATED):
        began = time.perf_counter()
        for _ in range(40):
            usage.use.held_back += 0.005
            usage.write()
            time.sleep(0.01)
        taken = time.perf_counter() - began
    rows = read_samples(tmp_path).rows
    shares = [row["gpu0_throttled"] for row in rows if row["seconds"] < began + taken and "gpu0_throttled" in row]
    assert sum(shares) / len(shares) == pytest.approx(40 * 0.005 / taken, abs=0.15)
    assert {row["gpu0_power_capped"] for row in rows} == {0}
    assert rows[-1]["gpu0_sm_mhz"] == 750


def test_a_process_of_somebody_else_on_the_device_is_foreign(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    simulated_device()
    with (
        sampled(tmp_path, lease=SIMULATED) as watch,
        idle() as rank,
        idle() as other,
    ):
        uses_the_device(tmp_path, rank)
        watch({0: rank.pid})
        time.sleep(0.15)
        uses_the_device(tmp_path, other)
        time.sleep(0.2)
        other.kill()
        other.wait()
        time.sleep(0.15)
    rows = read_samples(tmp_path).rows
    counts = [row["gpu0_foreign_processes"] for row in rows if "gpu0_foreign_processes" in row]
    assert [count for count, _ in groupby(counts)] == [0, 1, 0]


def test_a_worker_of_a_rank_in_a_session_of_its_own_is_not_foreign(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    """Torchrun starts its workers like that."""
    simulated_device()
    with sampled(tmp_path, lease=SIMULATED) as watch, idle() as worker:
        watch({0: os.getpid()})
        uses_the_device(tmp_path, worker)
        time.sleep(0.2)
    counts = {row["gpu0_foreign_processes"] for row in read_samples(tmp_path).rows if "gpu0_foreign_processes" in row}
    assert counts == {0}


@contextmanager
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own that waits, and end it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


def uses_the_device(folder: Path, process: subprocess.Popen[bytes]) -> None:
    file = folder / "device" / "processes" / f"{process.pid}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"bytes": 1, "busy": 1.0}))


def test_a_driver_that_vanishes_in_mid_run_leaves_a_gap_with_its_reason(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    simulated_device()
    spec, hidden = tmp_path / "device" / "device.json", tmp_path / "hidden.json"
    with sampled(tmp_path, lease=SIMULATED):
        time.sleep(0.15)
        spec.rename(hidden)
        time.sleep(0.15)
        hidden.rename(spec)
        time.sleep(0.15)
    samples = read_samples(tmp_path)
    rows = samples.rows
    seen = ["gpu0_celsius" in row for row in rows]
    assert [present for present, _ in groupby(seen)] == [True, False, True]
    assert "cannot be read" in samples.reasons["gpu0"]


def test_the_rows_of_several_nodes_are_on_the_first_ones_clock_in_columns_of_their_own(tmp_path: Path) -> None:
    for node in (0, 1):
        with sampled(tmp_path, node=node) as watch:
            watch({node: os.getpid()})
            time.sleep(0.15)
    other = samples_path(tmp_path, 1)
    first, *lines = [json.loads(line) for line in other.read_text("utf-8").splitlines()]
    seconds_apart = 500.0  # as if the other machine had been started that much later
    shifted = [{**line, "seconds": line["seconds"] - seconds_apart} if "seconds" in line else line for line in lines]
    document = [{"epoch": first["epoch"] + seconds_apart}, *shifted]
    other.write_text("".join(json.dumps(line) + "\n" for line in document), "utf-8")
    samples = read_samples(tmp_path)
    times = [row["seconds"] for row in samples.rows]
    assert times == sorted(times)
    assert 0.2 < times[-1] - times[0] < 5.0
    columns = {column for row in samples.rows for column in row}
    assert {"host_cpu_cores", "host1_cpu_cores", "rank0_rss_bytes", "rank1_rss_bytes"} <= columns
    assert {quantity_of(column) for column in columns if column.startswith("host")} == {
        *("host_memory_bytes", "host_cpu_cores", "host_disk_bytes_per_second", "host_network_bytes_per_second")
    }


def test_the_devices_of_a_second_node_are_numbered_after_those_of_the_first(
    tmp_path: Path, simulated_device: Callable[..., ProcessUsage]
) -> None:
    simulated_device()
    with sampled(tmp_path, lease=SIMULATED, node=1):
        time.sleep(0.1)
    assert all("gpu1_celsius" in row for row in read_samples(tmp_path).rows)


def test_the_trials_of_a_search_are_one_series(tmp_path: Path) -> None:
    for trial in ("8", "16"):
        (tmp_path / trial).mkdir()
        with sampled(tmp_path / trial):
            time.sleep(0.1)
        append_samples(tmp_path, tmp_path / trial)
    samples, first, last = (read_samples(folder) for folder in (tmp_path, tmp_path / "8", tmp_path / "16"))
    assert samples.rows[-len(last.rows) :] == last.rows
    assert samples.cpu_seconds == pytest.approx(first.cpu_seconds + last.cpu_seconds)
    assert len(samples.rows) > len(last.rows)
    append_samples(tmp_path, tmp_path / "32")
    assert read_samples(tmp_path) == samples, "a trial without samples"

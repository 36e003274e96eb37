"""A real PostgreSQL as the store: two publishers at once, live publishing, and a database that stops midway."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from polling import PATIENCE_SECONDS, until
from postgres import PASSWORD, Postgres, postgres, programs

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.run_writer import RunWriter
from accelsweep.tracking.store_errors import StoreUnavailable

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL: make system installs Debian's"),
    pytest.mark.xdist_group("postgres"),
]

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]
ALL = 35
"""The runs of the published example: 8 settings, 2 unsupported ones and their group, 23 repeats, 1 report."""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A server that the tests of this module share; their sweeps have different names."""
    with postgres() as server:
        yield server


def start_publisher(sweep: SweepFolder, uri: str, *options: str) -> subprocess.Popen[str]:
    """Start a publisher in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "accelsweep.tracking.live_publishing",
        str(sweep.root),
        "--tracking-uri",
        uri,
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.long  # test_interrupted.py has three at once in SQLite; only here they need a database lock
def test_two_concurrent_publishers_fill_an_empty_database_with_each_run_once(
    database: Postgres, sweep: SweepFolder, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    both = [start_publisher(sweep, database.uri) for _ in range(2)]
    outputs = [publisher.communicate(timeout=PATIENCE_SECONDS)[0] for publisher in both]
    assert [publisher.returncode for publisher in both] == [0, 0], outputs
    assert PASSWORD not in "".join(outputs)
    assert f"{sweep.name}: 23 runs in MLflow experiment '{sweep.name}' at postgresql://***@127.0.0.1" in outputs[0]
    assert len(read_store(sweep, database.uri)) == ALL  # fails if a key occurs twice
    assert publish(sweep, database.uri).written == 0
    assert PASSWORD.encode() not in sweep.published.read_bytes()


def test_a_database_that_stops_midway_is_completed_by_the_next_command(
    database: Postgres,
    sweep: SweepFolder,
    read_store: ReadStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines: list[str] = []
    write, keys = RunWriter.write, []

    def stop_at_the_twelfth(writer: RunWriter, run: Any) -> None:
        keys.append(run.key)
        if len(keys) == 12:
            database.stop()
        write(writer, run)

    with monkeypatch.context() as stopping:
        stopping.setattr(RunWriter, "write", stop_at_the_twelfth)
        with pytest.raises(StoreUnavailable, match="All records are safe") as caught:
            publish(sweep, database.uri, retry_seconds=2, echo=lines.append)
    with pytest.raises(StoreUnavailable, match="could not be written to"):
        publish(sweep, database.uri, retry_seconds=0, echo=lines.append)
    database.start()
    assert len(lines) == 1, "that the database does not answer is reported once"
    output = capfd.readouterr()
    assert PASSWORD not in "".join([*lines, str(caught.value), caplog.text, output.out, output.err])
    assert "Traceback" not in caplog.text + output.err
    assert publish(sweep, database.uri).finished == 23
    assert len(read_store(sweep, database.uri)) == ALL - 1, "without findings there is no report"
    assert publish(sweep, database.uri).written == 0


@pytest.mark.long  # test_live_publishing.py has a SQLite store, the test above stops the database; only here both meet
def test_live_publishing_survives_a_restart_of_the_database(
    database: Postgres, sweep: SweepFolder, read_store: ReadStore
) -> None:
    runs, held_back = sweep.root / "runs", sweep.home / "held back"
    shutil.move(runs, held_back)
    first, *others = sorted(path.name for path in held_back.iterdir())
    driver = subprocess.Popen(["sleep", "600"])
    publisher = start_publisher(sweep, database.uri, "--follow", "--until-pid", str(driver.pid))
    try:
        shutil.copytree(held_back / first, runs / first)
        until(lambda: f"run:{first}" in read_store(sweep, database.uri))
        database.stop()
        for run in others:
            shutil.copytree(held_back / run, runs / run)
        assert publisher.stdout is not None
        line = publisher.stdout.readline()
        assert line.startswith("MLflow at postgresql://***@127.0.0.1"), "".join([line, *publisher.stdout])
        assert line.endswith("; the sweep goes on\n")
        database.start()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        rest = publisher.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        driver.kill()
    assert publisher.returncode == 0, rest
    assert len(read_store(sweep, database.uri)) == ALL - 1
    assert PASSWORD not in line + rest
    assert "Traceback" not in rest


def test_a_wrong_password_is_reported_without_showing_it(database: Postgres, sweep: SweepFolder) -> None:
    uri = database.uri.replace(PASSWORD, "not-the-password")
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        publish(sweep, uri, retry_seconds=0)
    assert "not-the-password" not in str(caught.value)

"""A real PostgreSQL as the store: filled, followed, shared by two publishers, and stopped in the middle."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import PATIENCE_SECONDS, until
from postgres import PASSWORD, Postgres, postgres, programs

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.publisher import StoreUnreachable, publish
from accelsweep.tracking.run_upload import Writer

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL: make system installs Debian's"),
    pytest.mark.xdist_group("postgres"),
]

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]
ALL = 35
"""The runs of the example with its report: 8 settings, 2 that cannot run and their group, 23 repeats, 1 report."""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A server that the tests of this module share; each has a sweep of its own name."""
    with postgres() as server:
        yield server


def publisher(sweep: SweepFolder, uri: str, *options: str) -> subprocess.Popen[str]:
    """Start a publisher as a process of its own."""
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


@pytest.mark.long  # test_interrupted.py has three at once in SQLite; only here a server's locks part them
def test_two_publishers_at_once_fill_an_empty_database_with_each_run_once(
    database: Postgres, sweep: SweepFolder, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    both = [publisher(sweep, database.uri) for _ in range(2)]
    said = [one.communicate(timeout=PATIENCE_SECONDS)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert PASSWORD not in "".join(said)
    assert f"{sweep.name}: 23 runs in MLflow experiment '{sweep.name}' at postgresql://***@127.0.0.1" in said[0]
    assert len(read_store(sweep, database.uri)) == ALL  # fails if a key stands there twice
    assert publish(sweep, database.uri).written == 0
    assert PASSWORD.encode() not in sweep.published.read_bytes()


def test_a_database_stopped_in_the_middle_loses_nothing_and_the_next_command_completes_it(
    database: Postgres,
    sweep: SweepFolder,
    read_store: ReadStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    whole, begun = Writer.bring_about, []

    def stop_at_the_twelfth(writer: Writer, wanted: Any) -> None:
        begun.append(wanted.key)
        if len(begun) == 12:
            database.stop()
        whole(writer, wanted)

    with monkeypatch.context() as stopping:
        stopping.setattr(Writer, "bring_about", stop_at_the_twelfth)
        with pytest.raises(StoreUnreachable, match="All records are safe") as caught:
            publish(sweep, database.uri, patience_seconds=2, tell=said.append)
    with pytest.raises(StoreUnreachable, match="could not be filled"):
        publish(sweep, database.uri, patience_seconds=0, tell=said.append)
    database.start()
    assert len(said) == 1, "it is told once that the database does not answer"
    shown = capfd.readouterr()
    assert PASSWORD not in "".join([*said, str(caught.value), caplog.text, shown.out, shown.err])
    assert "Traceback" not in caplog.text + shown.err
    assert publish(sweep, database.uri).finished == 23
    assert len(read_store(sweep, database.uri)) == ALL - 1, "without findings there is no report"
    assert publish(sweep, database.uri).written == 0


@pytest.mark.long  # test_follow.py follows into SQLite, the test above stops the database; only here both meet
def test_a_sweep_is_followed_into_the_database_while_that_is_stopped_and_started(
    database: Postgres, sweep: SweepFolder, read_store: ReadStore
) -> None:
    runs, waiting = sweep.root / "runs", sweep.home / "not yet"
    shutil.move(runs, waiting)
    first, *others = sorted(path.name for path in waiting.iterdir())
    head = subprocess.Popen(["sleep", "600"])
    follower = publisher(sweep, database.uri, "--follow", "--until-pid", str(head.pid))
    try:
        shutil.copytree(waiting / first, runs / first)
        until(lambda: f"run:{first}" in read_store(sweep, database.uri))
        database.stop()
        for run in others:
            shutil.copytree(waiting / run, runs / run)
        assert follower.stdout is not None
        said = follower.stdout.readline()
        assert said.startswith("MLflow at postgresql://***@127.0.0.1"), "".join([said, *follower.stdout])
        assert said.endswith("; the sweep goes on\n")
        database.start()
        head.send_signal(signal.SIGKILL)
        head.wait()
        rest = follower.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        head.kill()
    assert follower.returncode == 0, rest
    assert len(read_store(sweep, database.uri)) == ALL - 1
    assert PASSWORD not in said + rest
    assert "Traceback" not in rest


def test_a_wrong_password_is_told_without_it(database: Postgres, sweep: SweepFolder) -> None:
    uri = database.uri.replace(PASSWORD, "not-the-password")
    with pytest.raises(StoreUnreachable, match="password authentication failed") as caught:
        publish(sweep, uri, patience_seconds=0)
    assert "not-the-password" not in str(caught.value)

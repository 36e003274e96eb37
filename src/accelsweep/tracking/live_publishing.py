"""Publish a sweep while it runs: finished runs as they appear, and how many steps the running one has done.

It is a process of its own at the lowest priority, so that it cannot hold up a measurement. It looks at the sweep's
files only. It ends with a full pass on SIGTERM or Ctrl-C, or when the sweep's head ends. A store that does not answer
costs the sweep nothing: this is reported once, and the store is tried again, ever more rarely.
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import typer

from accelsweep.errors import AccelsweepError
from accelsweep.records.file_times import bring_all_back
from accelsweep.records.layout import SweepFolder, planned_sweep, sweep_parser
from accelsweep.redaction import masked
from accelsweep.signals import answer
from accelsweep.tracking.publisher import Publication, Tell, bring_about_runs, publish
from accelsweep.tracking.repeat_runs import run_key
from accelsweep.tracking.store import Store, connect, refusal, refuse_damaged, store_errors, why
from accelsweep.tracking.sweep_snapshot import GOES_ON, Snapshot, resolve, surely_up_to_date, take

POLL_SECONDS = 2.0

_LONGEST_PAUSE_SECONDS = 60.0

_PATIENCE_SECONDS = 30.0

_QUICKLY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}


class Follower:
    """Follows one sweep. `poll()` publishes the changes that one look finds; it never raises for a silent store."""

    def __init__(self, folder: SweepFolder, uri: str, tell: Tell) -> None:
        """`uri` is the resolved address of the store."""
        from accelsweep.tracking.run_upload import Writer

        self._folder, self._uri, self._tell = folder, uri, tell
        self._make_writer = Writer
        self._writer: Writer | None = None
        self._store: Store | None = None
        self._snapshot: Snapshot | None = None
        self._told = False
        self.silent = False
        """Whether the store gave no answer when it was last asked."""
        self._pause = POLL_SECONDS
        self._not_before = 0.0

    def poll(self) -> None:
        """Publish the changes since the last poll, or nothing while a store that did not answer is left alone."""
        if time.monotonic() < self._not_before:
            return
        try:
            self._publish_changes()
            self._pause = POLL_SECONDS
            self.silent = False
        except store_errors() as error:
            refuse_damaged(self._uri, error, self._folder.name)
            self._writer = None
            self._snapshot = None
            self.silent = True
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            self._not_before = time.monotonic() + self._pause
            if not self._told:
                self._told = True
                experiment = self._store.experiment if self._store else None
                said = refusal(self._uri, error, experiment, self._folder.name)
                said = said or f"MLflow at {masked(self._uri)} does not answer ({why(error)})"
                self._tell(f"{said}{GOES_ON}")

    def _publish_changes(self) -> None:
        if not self._folder.manifest.exists():
            return
        snapshot = take(self._folder, self._snapshot, live=True)
        if snapshot == self._snapshot:
            return
        if self._writer is None:
            with contextlib.nullcontext() if self._told or self._store else _asked_quickly():
                self._store = connect(self._folder, self._uri, snapshot.records)
            self._writer = self._make_writer(self._store, self._store.look())
        before = self._snapshot
        if not snapshot.differs_in_steps_only(before):
            bring_about_runs(self._writer, snapshot)
        for run, running in snapshot.running.items():
            if running.step is not None and (before is None or running != before.running.get(run)):
                self._writer.progress(run_key(run), running.step)
        self._snapshot = snapshot


@contextlib.contextmanager
def _asked_quickly() -> Iterator[None]:
    """Have MLflow wait for some seconds only, so that a server that gives no answer is told of early."""
    usual = {name: os.environ[name] for name in _QUICKLY}
    os.environ.update(_QUICKLY)
    try:
        yield
    finally:
        os.environ.update(usual)


def follow(
    folder: SweepFolder, tracking_uri: str | None = None, *, until_pid: int | None = None, tell: Tell = print
) -> Publication | None:
    """Publish the sweep until the process `until_pid` ends or this one is told to stop; then publish all and return.

    Returns None, and never imports mlflow, where a database has everything already and no block begins meanwhile.
    A store that was silent until the end is asked once more without waiting, because the sweep's user waits for this.
    Must run in the main thread of a process of its own: it lowers the process's priority and takes over its signals.
    Raises StoreUnreachable if the store does not answer at the end, or refuses the user.
    """
    os.nice(19)
    stop = _stop_on_signals()
    ended = _ended(until_pid)
    if _has_all(folder, tracking_uri):
        while not (stop.is_set() or ended() or folder.holds()):
            stop.wait(POLL_SECONDS)
        if not folder.holds() and _has_all(folder, tracking_uri):
            return None
    follower = Follower(folder, resolve(folder.home, tracking_uri), tell)
    try:
        while not stop.is_set() and not ended():
            follower.poll()
            stop.wait(POLL_SECONDS)
    except AccelsweepError as error:
        tell(str(error))
        raise
    return publish(folder, tracking_uri, patience_seconds=0.0 if follower.silent else _PATIENCE_SECONDS, tell=tell)


def _has_all(folder: SweepFolder, tracking_uri: str | None) -> bool:
    return folder.manifest.exists() and surely_up_to_date(folder, tracking_uri)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _ended(pid: int | None) -> Callable[[], bool]:
    """Return a function that says whether the process with this id has ended, also if another one has its id now."""
    if pid is None:
        return lambda: False
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return lambda: True

    def ended() -> bool:
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # between the two questions
            return True

    return ended


# `python -m accelsweep.tracking.live_publishing sweeps/NAME [--follow] [--tracking-uri URI] [--until-pid PID]`


def main(arguments: list[str] | None = None) -> int:
    """Publish the sweep named on the command line; return the exit code."""
    parser = sweep_parser("tracking.live_publishing", "Copy a sweep's records to MLflow.")
    parser.add_argument("--tracking-uri", help="where to (default: MLFLOW_TRACKING_URI, else HOME/mlflow.db)")
    parser.add_argument("--follow", action="store_true", help="go on while the sweep runs")
    parser.add_argument("--until-pid", type=int, help="with --follow: end when this process has ended")
    options = parser.parse_args(arguments)
    return answer(lambda: _publish(options))


def _publish(options: argparse.Namespace) -> None:
    folder = planned_sweep(options.sweep)
    if options.follow:
        done = follow(folder, options.tracking_uri, until_pid=options.until_pid, tell=typer.echo)
        typer.echo(done or _nothing_to_do(folder))
        return
    from accelsweep.tracking.sweep_snapshot import surely_up_to_date

    bring_all_back(folder)
    if surely_up_to_date(folder, options.tracking_uri):
        typer.echo(_nothing_to_do(folder))
        return
    from accelsweep.tracking.publisher import publish

    typer.echo(publish(folder, options.tracking_uri, tell=typer.echo))


def _nothing_to_do(folder: SweepFolder) -> str:
    return f"{folder.name}: MLflow has everything already"


if __name__ == "__main__":
    sys.exit(main())

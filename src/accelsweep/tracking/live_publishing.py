"""Publishes a sweep while it runs: finished runs as they appear, and the step counts of running ones.

The publisher is a separate lowest-priority process that only reads the sweep's files, so it cannot disturb a
measurement. It makes a final full pass on SIGTERM or Ctrl-C, or when the sweep's driver has ended. A store that does
not respond is reported once and retried with backoff.

    python -m accelsweep.tracking.live_publishing sweeps/NAME [--follow] [--tracking-uri URI] [--until-pid PID]
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - sets the variables that _FAIL_FAST overrides

# isort: split
import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil
import typer

from accelsweep.errors import AccelsweepError
from accelsweep.garbage_collection import collect_rarely
from accelsweep.records.file_times import clamp_sweep_times
from accelsweep.records.layout import SweepFolder, planned_sweep, sweep_parser
from accelsweep.redaction import masked
from accelsweep.signals import exit_code_of
from accelsweep.tracking.published_state import SWEEP_CONTINUES, verified_up_to_date
from accelsweep.tracking.publisher import Echo, Publication, publish, publish_runs
from accelsweep.tracking.repeat_runs import run_key
from accelsweep.tracking.snapshot import Snapshot, take_snapshot
from accelsweep.tracking.store import Store, connect
from accelsweep.tracking.store_errors import (
    StoreDamaged,
    missing_package,
    permanent_error,
    short_reason,
    store_exceptions,
)
from accelsweep.tracking.store_uri import resolve_uri

if TYPE_CHECKING:
    from accelsweep.tracking.run_writer import RunWriter

_POLL_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 60.0
_FINAL_RETRY_SECONDS = 30.0
_FAIL_FAST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}


class LivePublisher:
    """Publishes a sweep's changes at each `poll`. A store failure does not raise an exception."""

    def __init__(self, folder: SweepFolder, uri: str, echo: Echo) -> None:
        """`uri` is the resolved URI of the store."""
        self._folder, self._uri, self._echo = folder, uri, echo
        self._store: Store | None = None
        self._writer: RunWriter | None = None
        self._snapshot: Snapshot | None = None
        self._reported = False
        self.store_failed = False
        """Whether the last attempt to publish failed."""
        self._pause = _POLL_SECONDS
        self._next_attempt = 0.0

    def poll(self) -> None:
        """Publish the changes since the last poll. Does nothing during the backoff after a failure.

        Raises StoreDamaged for a damaged SQLite file, and InputError if the store needs a package that is missing.
        """
        if time.monotonic() < self._next_attempt:
            return
        try:
            self._publish_changes()
        except ModuleNotFoundError as error:
            raise missing_package(self._uri, error) from error
        except store_exceptions() as error:
            experiment = self._store.experiment if self._store else None
            permanent = permanent_error(self._uri, error, experiment, self._folder.name)
            if isinstance(permanent, StoreDamaged):
                raise permanent from error
            self._writer = self._snapshot = None
            self.store_failed = True
            self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
            self._next_attempt = time.monotonic() + self._pause
            if not self._reported:
                self._reported = True
                reason = permanent or f"MLflow at {masked(self._uri)} does not answer ({short_reason(error)})"
                self._echo(f"{reason}{SWEEP_CONTINUES}")
        else:
            self.store_failed = False
            self._pause = _POLL_SECONDS

    def _publish_changes(self) -> None:
        from accelsweep.tracking.run_writer import RunWriter

        if not self._folder.manifest.exists():
            return
        before, snapshot = self._snapshot, take_snapshot(self._folder, self._snapshot, live=True)
        if snapshot == before:
            return
        if self._writer is None:
            with contextlib.nullcontext() if self._reported or self._store else _fail_fast():
                self._store = connect(self._folder, self._uri, snapshot.record_digests)
            self._writer = RunWriter(self._store, self._store.list_runs())
        if before is None or snapshot.without_steps() != before.without_steps():
            publish_runs(self._writer, snapshot)
        for name, run in snapshot.running.items():
            if run.step is not None and (before is None or run != before.running.get(name)):
                self._writer.log_progress(run_key(name), run.step)
        self._snapshot = snapshot


@contextlib.contextmanager
def _fail_fast() -> Iterator[None]:
    """Make MLflow time out after a few seconds, so that an unresponsive server is reported early."""
    before = {name: os.environ[name] for name in _FAIL_FAST}
    os.environ.update(_FAIL_FAST)
    try:
        yield
    finally:
        os.environ.update(before)


def follow(
    folder: SweepFolder, tracking_uri: str | None = None, *, until_pid: int | None = None, echo: Echo = print
) -> Publication | None:
    """Publish until the process `until_pid` ends or a signal arrives; then make a final pass and return its result.

    Returns None, without importing mlflow, if a SQLite file is already up to date and no block starts in the meantime.
    If the store failed at the last poll, the final pass does not retry, because the user is waiting. Must run in the
    main thread of a separate process, because it changes the process's priority and signal handlers. Raises
    StoreUnavailable if the store does not respond during the final pass or rejects it.
    """
    os.nice(19)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    has_ended = _process_watch(until_pid)
    if _has_all(folder, tracking_uri):
        while not (stop.is_set() or has_ended() or folder.locks()):
            stop.wait(_POLL_SECONDS)
        if not folder.locks() and _has_all(folder, tracking_uri):
            return None
    publisher = LivePublisher(folder, resolve_uri(folder.home, tracking_uri), echo)
    try:
        while not stop.is_set() and not has_ended():
            publisher.poll()
            stop.wait(_POLL_SECONDS)
    except AccelsweepError as error:
        echo(str(error))
        raise
    retry_seconds = 0.0 if publisher.store_failed else _FINAL_RETRY_SECONDS
    return publish(folder, tracking_uri, retry_seconds=retry_seconds, echo=echo)


def _has_all(folder: SweepFolder, tracking_uri: str | None) -> bool:
    return folder.manifest.exists() and verified_up_to_date(folder, tracking_uri)


def _process_watch(pid: int | None) -> Callable[[], bool]:
    """Return a function that reports whether the process has ended, even if its PID has been reused."""
    if pid is None:
        return lambda: False
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return lambda: True

    def has_ended() -> bool:
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # it ended between the two calls
            return True

    return has_ended


def main(arguments: list[str] | None = None) -> int:
    """Publish the sweep named on the command line; return the exit code."""
    parser = sweep_parser("tracking.live_publishing", "Copy a sweep's records to MLflow.")
    parser.add_argument("--tracking-uri", help="MLflow store (default: MLFLOW_TRACKING_URI, else HOME/mlflow.db)")
    parser.add_argument("--follow", action="store_true", help="keep publishing while the sweep runs")
    parser.add_argument("--until-pid", type=int, help="with --follow: stop when this process has ended")
    options = parser.parse_args(arguments)
    return exit_code_of(lambda: _publish(options))


def _publish(options: argparse.Namespace) -> None:
    folder, uri = planned_sweep(options.sweep), options.tracking_uri
    if options.follow:
        result = follow(folder, uri, until_pid=options.until_pid, echo=typer.echo)
    else:
        clamp_sweep_times(folder)
        result = None if verified_up_to_date(folder, uri) else publish(folder, uri, echo=typer.echo)
    typer.echo(result or f"{folder.name}: MLflow has everything already")


if __name__ == "__main__":
    collect_rarely()
    sys.exit(main())

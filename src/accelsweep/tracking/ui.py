"""MLflow's UI on a folder's results: on loopback, on the right store, and without leftovers when it is stopped."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from accelsweep.devices import linux
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, InputError
from accelsweep.json_documents import last_lines
from accelsweep.redaction import masked
from accelsweep.tracking.publisher import Tell
from accelsweep.tracking.saved_views import SETTINGS_VIEW, link
from accelsweep.tracking.store import create_database
from accelsweep.tracking.sweep_snapshot import ARTIFACTS, copies, is_server, resolve, without_login

# The user's browser: opened where there is one to look at, or where it was asked for.


def open_in_browser(address: str, asked: bool | None, tell: Tell) -> None:
    """Open `address` in the browser. If `asked` is None, only from a terminal on a desktop or with BROWSER set.

    `tell` gets a line where a browser was asked for and there is none.
    """
    if asked is False or (asked is None and not _at_a_desktop()):
        return
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        if asked:
            tell("no browser was found: open the address by hand, or set BROWSER")
        return
    threading.Thread(target=browser.open, args=(address,), daemon=True).start()  # some return when they are closed


def _at_a_desktop() -> bool:
    shown = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    return shown and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ


HOST = "127.0.0.1"

USUAL_PORT = 5000

_MAX_LINKS = 10

_START_SECONDS = 90.0

_STOP_SECONDS = 5.0


def serve_ui(
    home: Path,
    port: int | None = None,
    tracking_uri: str | None = None,
    *,
    browser: bool | None = False,
    tell: Tell = print,
) -> int:
    """Serve the UI on 127.0.0.1 until Ctrl-C or SIGTERM, and return the exit code.

    Without a `port`, MLflow's usual 5000 is taken if it is free, else any free one. Where the store is a tracking
    server, nothing is started: its address and those of the sweeps there are printed. The first view of the latest
    sweep is opened in the user's `browser`; None opens it where there is one. Raises InputError if the asked port is
    taken. Main thread only.
    """
    uri = resolve(home, tracking_uri)
    if is_server(uri):
        address = without_login(uri)
        tell(f"the results are on a tracking server: open {address}")
        _lead_to(home, uri, address, browser, tell)
        return EXIT_OK
    create_database(uri, home)
    stop = threading.Event()
    with _signals(stop), running_server(home, uri, port) as server:
        tell(f"MLflow's UI on {masked(uri)}: {server.address} (Ctrl-C stops it)")
        _lead_to(home, uri, server.address, browser, tell)
        while server.process.poll() is None:
            if stop.wait(0.2):
                tell("stopped")
                return EXIT_OK
        tell(f"MLflow's UI ended by itself:\n{server.last_lines()}")
        return EXIT_INCOMPLETE


def _lead_to(home: Path, uri: str, address: str, browser: bool | None, tell: Tell) -> None:
    """Print a link below `address` for each sweep that the store at `uri` has, and open the latest one's."""
    links = {
        name: f"{address}{link(copied.experiment_id, SETTINGS_VIEW if copied.views else None)}"
        for name, copied in list(copies(home, uri).items())[:_MAX_LINKS]
    }
    for name, place in links.items():
        tell(f"  {name}: {place}")
    open_in_browser(next(iter(links.values()), address), browser, tell)


class PortLost(AccelsweepError):
    """The server could not start, because another process took its port."""


class Server:
    """A running MLflow server and where its output goes."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        """Use `running_server`."""
        self.process = process
        self.port = port
        self.address = f"http://{HOST}:{port}"
        self._log = log

    def last_lines(self) -> str:
        """Return the end of the server's output."""
        return "\n".join(last_lines(self._log, 12))

    def wait_until_it_answers(self) -> None:
        """Return as soon as the server answers. Raises AccelsweepError if it ends instead, or takes too long.

        Between the look for a free port and the server's start another server may take the port. An answer is not
        ours then, and PortLost is raised as soon as ours has ended.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                said = self.last_lines()  # not a look at the port, which may be free again by now
                kind = PortLost if f"[Errno {errno.EADDRINUSE}]" in said else AccelsweepError
                raise kind(f"MLflow's server did not start:\n{said}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK and self._listens():
                    return
            time.sleep(0.2)
        raise AccelsweepError(f"MLflow's server did not answer within {_START_SECONDS:.0f} s:\n{self.last_lines()}")

    def _listens(self) -> bool:
        """Say whether the port belongs to this server or to a process that it started."""
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(self.process.pid)
            for process in (server, *server.children(recursive=True)):
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port:
                        return True
        return False


@contextlib.contextmanager
def running_server(home: Path, uri: str, port: int | None = None) -> Iterator[Server]:
    """Start MLflow's server on the store at `uri`, wait until it answers, and end it with all its processes at exit.

    The store's address goes through the environment, where no process list shows it. The server has a session of its
    own, so Ctrl-C reaches only this process. The server ends with this process if that is killed.
    """
    with tempfile.TemporaryFile() as log:
        server = _start_on_free_port(home, uri, port, log)
        try:
            yield server
        finally:
            _end_group(server.process)


def _start_on_free_port(home: Path, uri: str, asked: int | None, log: IO[bytes]) -> Server:
    """Start a server. If its free port was lost to another one meanwhile, and none was asked for, start once more."""
    try:
        return _start(home, uri, _free_port(asked), log)
    except PortLost:
        if asked is not None:
            raise
        return _start(home, uri, _free_port(0), log)


def _start(home: Path, uri: str, port: int, log: IO[bytes]) -> Server:
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    command += [
        "--artifacts-destination",
        (home.resolve() / ARTIFACTS).as_uri(),
        "--uvicorn-opts",
        "--log-level warning",
    ]
    environment = {name: value for name, value in os.environ.items() if not _OF_ANOTHER_SERVER.fullmatch(name)}
    environment |= {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    process = subprocess.Popen(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=partial(linux.die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509 - no thread holds a lock
    )
    try:
        server = Server(process, port, log)
        server.wait_until_it_answers()
    except BaseException:
        _end_group(process)
        raise
    return server


_OF_ANOTHER_SERVER = re.compile(
    r"MLFLOW_(HOST|PORT|WORKERS|STATIC_PREFIX|ARTIFACTS_ONLY|SERVE_ARTIFACTS|DEFAULT_ARTIFACT_ROOT|EXPOSE_PROMETHEUS"
    r"|GUNICORN_OPTS|UVICORN_OPTS|APP_NAME|REGISTRY_STORE_URI|READ_REPLICA_BACKEND_STORE_URI|SERVER_\w+)"
)
"""Options that `mlflow server` takes from variables: set for a group's server, they would move or close ours."""


def _free_port(asked: int | None) -> int:
    for candidate in (USUAL_PORT, 0) if asked is None else (asked,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError as error:
                if asked is not None:
                    why = f"port {asked} on {HOST} cannot be used ({error.strerror})"
                    raise InputError(f"{why}: give --port another number, or leave it out") from None
                continue
            return int(probe.getsockname()[1])
    raise AccelsweepError(f"no port of {HOST} is free: end a server that listens there")


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `stop`, and give the signals back at exit."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and all processes that it started: first politely, then by force."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

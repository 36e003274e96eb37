"""Serves MLflow's UI for a folder's results on the loopback interface, and opens it in the user's browser.

The server leaves no processes behind.
"""

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
from accelsweep.files import tail_lines
from accelsweep.redaction import masked
from accelsweep.tracking.links import EXPERIMENTS_PATH, view_path
from accelsweep.tracking.published_state import published_sweeps
from accelsweep.tracking.publisher import Echo
from accelsweep.tracking.store import create_database
from accelsweep.tracking.store_uri import ARTIFACTS, is_server, resolve_uri, without_login

HOST = "127.0.0.1"
DEFAULT_PORT = 5000

_MAX_LINKS = 10
_START_SECONDS = 90.0
_STOP_SECONDS = 5.0

_OTHER_SERVER_OPTIONS = re.compile(
    r"MLFLOW_(HOST|PORT|WORKERS|STATIC_PREFIX|ARTIFACTS_ONLY|SERVE_ARTIFACTS|DEFAULT_ARTIFACT_ROOT|EXPOSE_PROMETHEUS"
    r"|GUNICORN_OPTS|UVICORN_OPTS|APP_NAME|REGISTRY_STORE_URI|READ_REPLICA_BACKEND_STORE_URI|SERVER_\w+)"
)
"""Variables from which `mlflow server` reads options; values meant for a shared server would break the local one."""


def serve_ui(
    home: Path,
    port: int | None = None,
    tracking_uri: str | None = None,
    *,
    browser: bool | None = False,
    echo: Echo = print,
) -> int:
    """Serve the UI on 127.0.0.1 until Ctrl-C or SIGTERM, and return the exit code. Call from the main thread only.

    `port` defaults to MLflow's 5000, or to any free port if that is in use. If the store is a tracking server, no
    server is started. The published sweeps are listed with links, and the newest one is opened in the browser; if
    `browser` is None, this happens only on a desktop. Raises InputError if the requested port is in use.
    """
    uri = resolve_uri(home, tracking_uri)
    if is_server(uri):
        echo("the results are on a tracking server:")
        _show_sweeps(home, uri, without_login(uri), browser, echo)
        return EXIT_OK
    create_database(uri, home)
    stop = threading.Event()
    with _stop_on_signals(stop), running_server(home, uri, port) as server:
        echo(f"MLflow's UI on {masked(uri)} (Ctrl-C stops it):")
        _show_sweeps(home, uri, server.address, browser, echo)
        while server.process.poll() is None:
            if stop.wait(0.2):
                echo("stopped")
                return EXIT_OK
        echo(f"MLflow's server ended unexpectedly:\n{server.last_lines()}")
        return EXIT_INCOMPLETE


def _show_sweeps(home: Path, uri: str, address: str, browser: bool | None, echo: Echo) -> None:
    sweeps = list(published_sweeps(home, uri).items())[:_MAX_LINKS]
    links = {name: f"{address}{view_path(published.experiment_id)}" for name, published in sweeps}
    links = links or {"all experiments": f"{address}{EXPERIMENTS_PATH}"}  # the bare address opens MLflow's home page
    for name, link in links.items():
        echo(f"  {name}: {link}")
    open_in_browser(next(iter(links.values())), browser, echo)


@contextlib.contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_in_browser(address: str, requested: bool | None, echo: Echo) -> None:
    """Open `address` in the user's browser; if `requested` is None, only from a desktop terminal or if BROWSER is set.

    `echo` is called with a message if a browser was requested but none is available.
    """
    if requested is False or (requested is None and not _is_desktop()):
        return
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        if requested:
            echo("no browser was found: open the URL yourself, or set BROWSER")
        return
    threading.Thread(target=browser.open, args=(address,), daemon=True).start()  # some browsers block until closed


def _is_desktop() -> bool:
    display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    return display and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ


class PortTaken(AccelsweepError):
    """The server could not start because another process took its port."""


class Server:
    """A running MLflow server and its log; `running_server` starts one."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        self.process = process
        self.port = port
        self.address = f"http://{HOST}:{port}"
        self._log = log

    def last_lines(self) -> str:
        """Return the last lines of the server's output."""
        return "\n".join(tail_lines(self._log, 12))

    def wait_until_ready(self) -> None:
        """Wait until the server responds. Raises AccelsweepError if it exits or times out.

        Another server may bind the port first. Its responses are ignored, and PortTaken is raised as soon as ours has
        exited.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                output = self.last_lines()  # the port itself may be free again by now
                kind = PortTaken if f"[Errno {errno.EADDRINUSE}]" in output else AccelsweepError
                raise kind(f"MLflow's server did not start:\n{output}")
            connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK and self._owns_port():
                    return
            time.sleep(0.2)
        raise AccelsweepError(f"MLflow's server did not answer within {_START_SECONDS:.0f} s:\n{self.last_lines()}")

    def _owns_port(self) -> bool:
        """Return whether this server or one of its children listens on the port."""
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(self.process.pid)
            for process in (server, *server.children(recursive=True)):
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port:
                        return True
        return False


@contextlib.contextmanager
def running_server(home: Path, uri: str, port: int | None = None) -> Iterator[Server]:
    """Run MLflow's server on the store at `uri`: wait until it responds, and end all of its processes on exit.

    The URI is passed through the environment, which process lists do not show. The server runs in its own session, so
    that Ctrl-C reaches only this process; if this process is killed, the server ends as well.
    """
    with tempfile.TemporaryFile() as log:
        try:
            server = _start(home, uri, _free_port(port), log)
        except PortTaken:
            if port is not None:
                raise
            server = _start(home, uri, _free_port(0), log)
        try:
            yield server
        finally:
            _end_group(server.process)


def _free_port(requested: int | None) -> int:
    for candidate in (DEFAULT_PORT, 0) if requested is None else (requested,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError as error:
                if requested is not None:
                    reason = f"port {requested} on {HOST} cannot be used ({error.strerror})"
                    raise InputError(f"{reason}: choose another --port, or omit it") from None
                continue
            return int(probe.getsockname()[1])
    raise AccelsweepError(f"no port on {HOST} is free: stop a server that is listening there")


def _start(home: Path, uri: str, port: int, log: IO[bytes]) -> Server:
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    command += ["--artifacts-destination", (home.resolve() / ARTIFACTS).as_uri()]
    command += ["--uvicorn-opts", "--log-level warning"]
    environment = {name: value for name, value in os.environ.items() if not _OTHER_SERVER_OPTIONS.fullmatch(name)}
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
        server.wait_until_ready()
    except BaseException:
        _end_group(process)
        raise
    return server


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and all of its processes, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)

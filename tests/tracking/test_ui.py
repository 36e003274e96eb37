"""The UI server answers on loopback only and leaves no process behind; the browser opens where somebody can see it."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import forked
import psutil
import pytest
from polling import PATIENCE_SECONDS, until

from accelsweep.errors import AccelsweepError, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.published_state import PublishedCopy, remember_copy
from accelsweep.tracking.store import create_database
from accelsweep.tracking.ui import Server, running_server, serve_ui

SERVE = (
    "import sys; from pathlib import Path; from accelsweep.tracking.ui import serve_ui; sys.exit(serve_ui(Path.cwd()))"
)

OTHER_SERVER_OPTIONS = {
    "MLFLOW_HOST": "0.0.0.0",
    "MLFLOW_STATIC_PREFIX": "/elsewhere",
    "MLFLOW_ARTIFACTS_ONLY": "true",
    "MLFLOW_GUNICORN_OPTS": "--timeout 1",
    "MLFLOW_SERVER_ALLOWED_HOSTS": "group.example",
    "MLFLOW_EXPOSE_PROMETHEUS": "/nowhere",
}
"""What the environment may hold of somebody who runs another server."""


@pytest.fixture
def ui(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves a folder's UI, with an empty store or without one, and its port."""
    if request.param == "store":
        shutil.copy(request.getfixturevalue("empty_database"), tmp_path / "mlflow.db")
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= OTHER_SERVER_OPTIONS
    command = [sys.executable, "-u", "-c", SERVE]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().endswith(" (Ctrl-C stops it):\n")
    link = process.stdout.readline()
    yield process, int(link.rpartition("127.0.0.1:")[2].partition("/")[0])
    process.kill()
    process.wait()


def http_status(port: int, host: str) -> int:
    """Return the HTTP status of the front page for a request with this host name."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/", headers={"Host": host})
    return connection.getresponse().status


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.real
@pytest.mark.parametrize(
    ("number", "ui"),
    [
        (signal.SIGINT, "store"),
        pytest.param(signal.SIGTERM, "none", marks=pytest.mark.long),  # SIGINT has its handler
        # driver/test_background_processes.py kills a parent of such a child
        pytest.param(signal.SIGKILL, "none", marks=pytest.mark.long),
    ],
    indirect=["ui"],
)
def test_the_server_answers_on_loopback_only_rejects_other_host_names_and_stops_with_all_its_processes(
    ui: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    process, port = ui
    assert [http_status(port, f"{host}:{port}") for host in ("127.0.0.1", "localhost")] == [200, 200]
    assert http_status(port, f"evil.example:{port}") == 403
    addresses = {
        connection.laddr.ip
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert addresses == {"127.0.0.1"}
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    assert process.wait(PATIENCE_SECONDS) == (-number if number == signal.SIGKILL else 0)
    until(lambda: not any(is_running(child) for child in children))


@pytest.mark.real
def test_a_taken_port_is_rejected_with_its_number(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port} on 127.0.0.1 cannot be used .*: choose another --port"):
            serve_ui(tmp_path, port=port)


@pytest.mark.real
def test_another_servers_answer_on_the_port_does_not_count(tmp_path: Path) -> None:
    """Two servers may look for a free port at the same time, and the other one may take it first."""
    command = [sys.executable, "-c", "import time; time.sleep(1); raise SystemExit('address already in use')"]
    (tmp_path / "health").write_text("OK")
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with (
            (tmp_path / "log").open("w+b") as log,
            subprocess.Popen(command, stderr=log) as process,
            pytest.raises(AccelsweepError, match="address already in use"),
        ):
            Server(process, other.server_port, log).wait_until_ready()
        other.shutdown()


@pytest.mark.real
@pytest.mark.long  # the two tests above have a taken port; only here two of our servers compete for one
def test_two_servers_that_start_at_the_same_time_both_get_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find the default port free, because it takes a server seconds to bind it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr("accelsweep.tracking.ui.DEFAULT_PORT", free.getsockname()[1])
    for name in ("one", "two"):
        create_database(f"sqlite:///{tmp_path / name}.db", tmp_path)
    barrier = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def serve(name: str) -> int:
        try:
            barrier.wait()
            with running_server(tmp_path, f"sqlite:///{tmp_path / name}.db") as server:
                barrier.wait()
                return server.port
        except BaseException:
            barrier.abort()  # else the other thread would wait for ever
            raise

    with ThreadPoolExecutor(2) as pool:
        ports = set(pool.map(serve, ("one", "two")))
    assert len(ports) == 2


def test_no_server_is_started_if_the_store_is_a_tracking_server_and_no_link_leads_to_its_home_page(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    assert serve_ui(tmp_path, tracking_uri="https://me:hunter2@mlflow.example", echo=lines.append) == 0
    link = "https://mlflow.example/#/experiments?workflowType=machine_learning"
    assert lines == ["the results are on a tracking server:", f"  all experiments: {link}"]


def test_each_sweep_on_a_tracking_server_has_a_link_to_it(example_sweep: SweepFolder) -> None:
    published = PublishedCopy(experiment_id="7", active_runs=1, records={}, report="")
    remember_copy(example_sweep, "https://me:hunter2@mlflow.example", published)
    lines: list[str] = []
    serve_ui(example_sweep.home, tracking_uri="https://me:hunter2@mlflow.example", echo=lines.append)
    assert lines[1].startswith(f"  {example_sweep.name}: https://mlflow.example/#/experiments/7/runs?")
    assert "hunter2" not in "".join(lines)


ADDRESS = "http://127.0.0.1:5000/#/experiments/1"


def run_open_in_browser(tmp_path: Path, requested: str, environment: dict[str, str], output: str) -> str:
    """Open ADDRESS in a process with this environment, on a terminal or a pipe; return what it prints."""
    with forked.start("browsing", ADDRESS, requested, output, cwd=tmp_path, environment=environment) as process:
        printed, _ = process.communicate(PATIENCE_SECONDS)
        assert process.wait() == 0, printed
    return printed


def opened_address(tmp_path: Path, requested: str, *, terminal: bool, **variables: str) -> str | None:
    """Return the address that the browser was started with, None if it was not started."""
    browser, address = tmp_path / "browser", tmp_path / "address"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {address}\n')
    browser.chmod(0o755)
    removed = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {"BROWSER": f"{browser} %s"} | variables
    assert run_open_in_browser(tmp_path, requested, environment, "terminal" if terminal else "pipe") == ""
    return address.read_text() if address.exists() else None


@pytest.mark.heavy
@pytest.mark.parametrize(("requested", "terminal"), [("yes", True), ("yes", False), ("default", True)])
def test_the_browser_opens_on_request_and_by_default_from_a_terminal(
    tmp_path: Path, requested: str, terminal: bool
) -> None:
    assert opened_address(tmp_path, requested, terminal=terminal) == ADDRESS


@pytest.mark.heavy
@pytest.mark.parametrize(("requested", "terminal"), [("no", True), ("default", False)])
def test_the_browser_stays_closed_on_request_and_by_default_in_scripts(
    tmp_path: Path, requested: str, terminal: bool
) -> None:
    assert opened_address(tmp_path, requested, terminal=terminal) is None


@pytest.mark.heavy
def test_the_browser_stays_closed_in_an_ssh_session(tmp_path: Path) -> None:
    assert opened_address(tmp_path, "default", terminal=True, SSH_CONNECTION="10.0.0.1 22") is None


@pytest.mark.heavy
def test_a_missing_browser_is_reported_if_it_was_requested(tmp_path: Path) -> None:
    printed = run_open_in_browser(tmp_path, "yes", {"PATH": str(tmp_path)}, "pipe")
    assert printed == "no browser was found: open the URL yourself, or set BROWSER\n"

"""The UI server: answers on loopback for both names of it, refuses foreign ones, and leaves no process behind."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_SECONDS

from accelsweep.errors import AccelsweepError, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.store import create_database
from accelsweep.tracking.sweep_snapshot import Copied, remember
from accelsweep.tracking.ui import Server, running_server, serve_ui

pytestmark = pytest.mark.real

SERVE = (
    "import sys; from pathlib import Path; from accelsweep.tracking.ui import serve_ui; sys.exit(serve_ui(Path.cwd()))"
)


OF_A_GROUPS_SERVER = {
    "MLFLOW_HOST": "0.0.0.0",
    "MLFLOW_STATIC_PREFIX": "/elsewhere",
    "MLFLOW_ARTIFACTS_ONLY": "true",
    "MLFLOW_GUNICORN_OPTS": "--timeout 1",
    "MLFLOW_SERVER_ALLOWED_HOSTS": "group.example",
    "MLFLOW_EXPOSE_PROMETHEUS": "/nowhere",
}
"""What stands in the environment of somebody who runs another server."""


@pytest.fixture
def ui(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that serves the results of a folder with an empty store, or with none, and its port."""
    if request.param == "store":
        shutil.copy(request.getfixturevalue("empty_database"), tmp_path / "mlflow.db")
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= OF_A_GROUPS_SERVER
    command = [sys.executable, "-u", "-c", SERVE]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    yield process, int(said.rpartition("127.0.0.1:")[2].split()[0])
    process.kill()
    process.wait()


def status(port: int, host: str) -> int:
    """Return the HTTP status of the front page when asked under this host name."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/", headers={"Host": host})
    return connection.getresponse().status


def answers_on_loopback_only_and_refuses_other_host_names(port: int) -> None:
    assert [status(port, f"{host}:{port}") for host in ("127.0.0.1", "localhost")] == [200, 200]
    assert status(port, f"evil.example:{port}") == 403
    listening = {
        connection.laddr.ip
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert listening == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("number", "ui"),
    [
        (signal.SIGINT, "store"),
        pytest.param(signal.SIGTERM, "none", marks=pytest.mark.long),  # SIGINT has its handler
        # drive/test_processes.py kills a parent of such a child
        pytest.param(signal.SIGKILL, "none", marks=pytest.mark.long),
    ],
    indirect=["ui"],
)
def test_it_answers_on_loopback_only_refuses_other_host_names_and_stops_with_all_its_processes(
    ui: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    process, port = ui
    answers_on_loopback_only_and_refuses_other_host_names(port)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    assert process.wait(PATIENCE_SECONDS) == (-number if number == signal.SIGKILL else 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(lives(child) for child in children):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.1)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_port_that_is_taken_is_refused_by_name(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"port {port} on 127.0.0.1 cannot be used .*: give --port another"):
            serve_ui(tmp_path, port=port)


def test_the_answer_of_another_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    """As when two look for a free port at the same time, and the other is the first to take it."""
    ours = [sys.executable, "-c", "import time; time.sleep(1); raise SystemExit('address already in use')"]
    (tmp_path / "health").write_text("OK")
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as theirs:
        threading.Thread(target=theirs.serve_forever, daemon=True).start()
        with (
            (tmp_path / "log").open("w+b") as log,
            subprocess.Popen(ours, stderr=log) as process,
            pytest.raises(AccelsweepError, match="address already in use"),
        ):
            Server(process, theirs.server_port, log).wait_until_it_answers()
        theirs.shutdown()


@pytest.mark.long  # the two tests above meet a taken port; only here both are ours
def test_two_that_start_at_the_same_time_both_get_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the usual port free, since a server takes seconds to take it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr("accelsweep.tracking.ui.USUAL_PORT", free.getsockname()[1])
    for name in ("one", "two"):
        create_database(f"sqlite:///{tmp_path / name}.db", tmp_path)
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def serve(name: str) -> int:
        try:
            together.wait()
            with running_server(tmp_path, f"sqlite:///{tmp_path / name}.db") as server:
                together.wait()
                return server.port
        except BaseException:
            together.abort()  # who fails does not keep the other waiting
            raise

    with ThreadPoolExecutor(2) as pool:
        ports = set(pool.map(serve, ("one", "two")))
    assert len(ports) == 2


def test_a_tracking_server_is_pointed_at_not_started(tmp_path: Path) -> None:
    said: list[str] = []
    assert serve_ui(tmp_path, tracking_uri="https://me:hunter2@mlflow.example", tell=said.append) == 0
    assert said == ["the results are on a tracking server: open https://mlflow.example"]


def test_each_sweep_that_was_published_to_a_tracking_server_has_its_link_there(example_sweep: SweepFolder) -> None:
    copied = Copied(experiment_id="7", active_runs=1, records={}, report="", views=True)
    remember(example_sweep, "https://me:hunter2@mlflow.example", copied)
    said: list[str] = []
    serve_ui(example_sweep.home, tracking_uri="https://me:hunter2@mlflow.example", tell=said.append)
    assert said[1].startswith(f"  {example_sweep.name}: https://mlflow.example/#/experiments/7/runs?")
    assert "hunter2" not in "".join(said)

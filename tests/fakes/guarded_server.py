"""A real `mlflow server` with passwords, on loopback, whose store and users are in a folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelsweep.tracking.ui import Server

ADMIN = ("admin", "hunter2hunter2")

_AUTH = f"""\
[mlflow]
default_permission = READ
database_uri = sqlite:///auth.db
admin_username = {ADMIN[0]}
admin_password = {ADMIN[1]}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = {{seconds}}
"""


def free_port() -> int:
    """Return a port on loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def guarded_server(home: Path, cache_seconds: int = 0) -> Iterator[str]:
    """Run the server in `home` and return its address; it caches a verified password for `cache_seconds`."""
    port = free_port()
    (home / "auth.ini").write_text(_AUTH.format(seconds=cache_seconds))
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1", "--backend-store-uri", "sqlite:///mlflow.db"]
    environment = os.environ | {
        "MLFLOW_AUTH_CONFIG_PATH": str(home / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "not a secret",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (home / "log").open("w+b") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            server = Server(process, port, log)
            server.wait_until_ready()
            yield server.address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()

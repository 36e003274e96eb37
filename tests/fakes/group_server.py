"""The server of docs/mlflow-server.md, set up in a home of its own by running the code blocks of that page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guarded_server import free_port
from postgres import programs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "mlflow-server.md").read_text("utf-8")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

BLOCKS = {title: _BLOCK.findall(text) for title, text in _SECTION.findall(PAGE)}
"""The shell blocks of each section."""

_AS_OTHER_USER = """#!/bin/bash
# PostgreSQL refuses to run as root, which tests in containers do, so these two programs run as another user.
chown -R postgres: "$HOME"
exec setpriv --reuid=postgres --regid=postgres --clear-groups -- {program} "$@"
"""


class GroupServer:
    """The server of a group, and the commands of its admin and users."""

    def __init__(self, home: Path) -> None:
        """`home` is that of the server's account; its path must be short enough for a socket."""
        self.port = free_port()
        self.home = home
        self.address = f"http://127.0.0.1:{self.port}"
        self.users: dict[str, str] = {}

    def run_blocks(self, section: str) -> str:
        """Run the blocks of a section in a shell; return their output."""
        return "".join(self.shell(block) for block in BLOCKS[section])

    def shell(self, script: str) -> str:
        """Run a script as the server's account; return its output."""
        with tempfile.TemporaryFile("w+") as log:  # the server would keep a pipe open
            command = ["bash", "-euo", "pipefail", "-c", script]
            done = subprocess.run(command, env=self._variables(), stdout=log, stderr=subprocess.STDOUT, check=False)
            log.seek(0)
            output = log.read()
        assert done.returncode == 0, f"{script}\n{output}"
        return output

    def _variables(self) -> dict[str, str]:
        path = f"{self.home / 'shims'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PG"))}
        return environment | {"HOME": str(self.home), "PATH": path, "MLFLOW_PORT": str(self.port)}

    def set_up(self) -> None:
        """Follow the page up to its two users."""
        postgres = programs()
        assert postgres is not None
        if os.getuid() == 0:
            (self.home / "shims").mkdir()
            for program in ("initdb", "pg_ctl"):
                shim = self.home / "shims" / program
                shim.write_text(_AS_OTHER_USER.format(program=postgres / program))
                shim.chmod(0o755)
        self.run_blocks("Set it up")
        self.run_blocks("Add people")
        self.run_blocks("Permissions")
        folder = self.home / "mlflow-server"
        lines = (folder / "passwords").read_text().splitlines()
        self.users = dict(line.split() for line in lines) | {"admin": (folder / "admin-password").read_text().strip()}

    def login(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return the environment variables that a user sets."""
        return {
            "MLFLOW_TRACKING_URI": self.address,
            "MLFLOW_TRACKING_USERNAME": user,
            "MLFLOW_TRACKING_PASSWORD": password or self.users[user],
        }


@contextmanager
def group_server() -> Iterator[GroupServer]:
    """Run the server in a temporary home."""
    with tempfile.TemporaryDirectory(prefix="group-", dir="/tmp") as folder:
        server = GroupServer(Path(folder))
        server.home.chmod(0o755)
        try:
            server.set_up()
            yield server
        finally:
            if (server.home / "mlflow-server" / "stop").exists():
                server.shell("bash ~/mlflow-server/stop")
            shutil.rmtree(server.home / "mlflow-server", ignore_errors=True)

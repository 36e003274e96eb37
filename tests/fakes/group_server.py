"""The server of docs/mlflow-server.md, made by the page's own blocks in a home of its own, word for word."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postgres import programs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "mlflow-server.md").read_text("utf-8")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

BLOCKS = {title: _BLOCK.findall(text) for title, text in _SECTION.findall(PAGE)}
"""The blocks to type, by the section that they stand in."""

_AS_ANOTHER = """#!/bin/bash
# PostgreSQL refuses to run as root, as tests in containers do: these two programs run as another user.
chown -R postgres: "$HOME"
exec setpriv --reuid=postgres --regid=postgres --clear-groups -- {program} "$@"
"""


def free_port() -> int:
    """Return a port on loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class GroupServer:
    """The server of a group, and what its people type."""

    def __init__(self, home: Path) -> None:
        """`home` is that of the account which the server runs as. Its path is short, as a socket's must be."""
        self.port = free_port()
        self.home = home
        self.address = f"http://127.0.0.1:{self.port}"
        self.users: dict[str, str] = {}

    def type(self, section: str) -> str:
        """Type the blocks of a section, as a shell reads them; return what they print."""
        return "".join(self.shell(block) for block in BLOCKS[section])

    def shell(self, text: str) -> str:
        """Run a text as the account of the server does."""
        with tempfile.TemporaryFile("w+") as said:  # no pipe: the server would hold it open
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(command, env=self._variables(), stdout=said, stderr=subprocess.STDOUT, check=False)
            said.seek(0)
            printed = said.read()
        assert done.returncode == 0, f"{text}\n{printed}"
        return printed

    def _variables(self) -> dict[str, str]:
        path = f"{self.home / 'shims'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PG"))}
        return known | {"HOME": str(self.home), "PATH": path, "MLFLOW_PORT": str(self.port)}

    def make(self) -> None:
        """Do what the page says, up to its two users."""
        found = programs()
        assert found is not None
        if os.getuid() == 0:
            (self.home / "shims").mkdir()
            for program in ("initdb", "pg_ctl"):
                shim = self.home / "shims" / program
                shim.write_text(_AS_ANOTHER.format(program=found / program))
                shim.chmod(0o755)
        self.type("Set it up")
        self.type("Add people")
        self.type("Permissions")
        folder = self.home / "mlflow-server"
        lines = (folder / "passwords").read_text().splitlines()
        self.users = dict(line.split() for line in lines) | {"admin": (folder / "admin-password").read_text().strip()}

    def login(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return the variables that a user sets."""
        return {
            "MLFLOW_TRACKING_URI": self.address,
            "MLFLOW_TRACKING_USERNAME": user,
            "MLFLOW_TRACKING_PASSWORD": password or self.users[user],
        }


@contextmanager
def group_server() -> Iterator[GroupServer]:
    """Make the server, and stop it and delete its home at the end."""
    with tempfile.TemporaryDirectory(prefix="group-", dir="/tmp") as folder:
        server = GroupServer(Path(folder))
        server.home.chmod(0o755)
        try:
            server.make()
            yield server
        finally:
            if (server.home / "mlflow-server" / "stop").exists():
                server.shell("bash ~/mlflow-server/stop")
            shutil.rmtree(server.home / "mlflow-server", ignore_errors=True)

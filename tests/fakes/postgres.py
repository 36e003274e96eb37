"""A real PostgreSQL of its own on loopback, with a password, from Debian's package, stopped and started at will."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PASSWORD = "hunter2hunter2"
"""What no output may show."""

_USER, _DATABASE = "sweeper", "postgres"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    found = shutil.which("pg_ctl")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return Path(found).resolve().parent if found else debian[-1].parent if debian else None


class Postgres:
    """One server with its data in `home`. It runs as `owner`, since PostgreSQL refuses to run as root."""

    def __init__(self, home: Path, owner: str | None) -> None:
        """Use `postgres`."""
        folder = programs()
        assert folder is not None
        self._programs, self._home, self._owner = folder, home, owner
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])

    @property
    def uri(self) -> str:
        """The address of its database, with the password."""
        return f"postgresql://{_USER}:{PASSWORD}@127.0.0.1:{self._port}/{_DATABASE}"

    def initialise(self) -> None:
        """Make the server's files."""
        secret = self._home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # the folder is closed to others
        self._run("initdb", f"--pgdata={self._home / 'data'}", f"--username={_USER}", f"--pwfile={secret}",
                  "--auth=scram-sha-256", "--encoding=UTF8", "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._home} -c fsync=off"
        self._run("pg_ctl", "start", "--wait", f"--log={self._home / 'log'}", "-o", options)

    def stop(self) -> None:
        """Stop it at once, with the connections that it has."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def _run(self, program: str, *options: str) -> None:
        subprocess.run(
            [str(self._programs / program), *options],
            check=True,
            cwd=self._home,
            user=self._owner,
            env=os.environ | {"PGDATA": str(self._home / "data")},
            stdout=subprocess.DEVNULL,  # a pipe would be held open by the server
        )


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server in a temporary folder, and stop it and delete the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="accelsweep-postgres-", dir="/tmp") as folder:  # sockets have short paths
        owner = _other_user() if os.getuid() == 0 else None
        if owner is not None:
            shutil.chown(folder, owner)
        server = Postgres(Path(folder), owner)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # a test that failed may have left it stopped
                server.stop()


def _other_user() -> str:
    """Return a user who is not root: the one that Debian's package makes, else nobody."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"

"""A real PostgreSQL server with a password on loopback, from Debian's package, which tests stop and start."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from guarded_server import free_port

PASSWORD = "hunter2hunter2"
"""Must not appear in any output."""

_USER, _DATABASE = "sweeper", "postgres"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None where it is not installed."""
    pg_ctl = shutil.which("pg_ctl")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return Path(pg_ctl).resolve().parent if pg_ctl else debian[-1].parent if debian else None


class Postgres:
    """A server with its data in `home`. It runs as `owner`, since PostgreSQL refuses to run as root."""

    def __init__(self, home: Path, owner: str | None) -> None:
        """Use `postgres`."""
        folder = programs()
        assert folder is not None
        self._programs, self._home, self._owner = folder, home, owner
        self._port = free_port()

    @property
    def uri(self) -> str:
        """The address of its database, with the password."""
        return f"postgresql://{_USER}:{PASSWORD}@127.0.0.1:{self._port}/{_DATABASE}"

    def initialise(self) -> None:
        """Create the data folder."""
        secret = self._home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)  # the folder is closed to others
        self._run("initdb", f"--pgdata={self._home / 'data'}", f"--username={_USER}", f"--pwfile={secret}",
                  "--auth=scram-sha-256", "--encoding=UTF8", "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._home} -c fsync=off"
        self._run("pg_ctl", "start", "--wait", f"--log={self._home / 'log'}", "-o", options)

    def stop(self) -> None:
        """Stop the server at once, dropping its connections."""
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate")

    def _run(self, program: str, *options: str) -> None:
        subprocess.run(
            [str(self._programs / program), *options],
            check=True,
            cwd=self._home,
            user=self._owner,
            env=os.environ | {"PGDATA": str(self._home / "data")},
            stdout=subprocess.DEVNULL,  # the server would keep a pipe open
        )


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a server in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="accelsweep-postgres-", dir="/tmp") as folder:  # a short path for sockets
        owner = _other_user() if os.getuid() == 0 else None
        if owner is not None:
            shutil.chown(folder, owner)
        server = Postgres(Path(folder), owner)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # a failed test may have left it stopped
                server.stop()


def _other_user() -> str:
    """Return a user other than root: the one that Debian's package creates, else `nobody`."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"

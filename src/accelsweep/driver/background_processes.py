"""The publisher of a head: it follows the sweep into MLflow, and whatever ends it early costs no run of the copy."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from accelsweep.config.site import Site
from accelsweep.devices import linux
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.ipc import FORK_SERVER_VARIABLE, address
from accelsweep.executor.preflight import MAX_TMPDIR_LENGTH, tmpdir_too_long
from accelsweep.files import tail_lines
from accelsweep.records.cleanup import (
    SHORT_PLACES,
    remove_temporary_folder,
    temporary_folder_name,
    write_owner_file,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.tracking.published_state import SWEEP_CONTINUES, up_to_date

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


# A child process of the head, in a session of its own, that dies with it and is stopped politely first.

_POLITE_SECONDS = 60.0


class Child:
    """A running command whose output goes to a log file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Wrap a started `process`; use `start`."""
        self._process = process
        self.log = log

    @classmethod
    def start(
        cls,
        command: list[str],
        *,
        cwd: Path,
        log: Path,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> Child:
        """Start `command` in `cwd` with stdout and stderr written to `log` (made anew).

        `variables` are added to the environment: a list of processes does not show them, so secrets go there.
        `environment` is ours unless it is given.
        `descriptors` stay open in it under the same numbers.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**(os.environ if environment is None else environment), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
                preexec_fn=partial(_as_child, os.getpid()),  # noqa: PLW1509 - we have one thread
            )
        return cls(process, log)

    @property
    def code(self) -> int:
        """The exit code, once the process has ended."""
        return self._process.wait()

    def running(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self._process.wait()

    def interrupt(self) -> None:
        """Send SIGINT to the process and its group, as Ctrl-C would, and wait; kill it if it ignores that."""
        self._signal_group(signal.SIGINT)
        self._wait_or_kill()

    def kill(self) -> None:
        """End the process and its group at once, before it can put down what it does."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        """Ask the process to end (SIGTERM), and wait until it has; kill it if it does not."""
        if self.running():
            self._process.terminate()
        self._wait_or_kill()

    def _wait_or_kill(self) -> None:
        try:
            self._process.wait(_POLITE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C means: kill it now
            self.kill()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.running():
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        """Return the child; leaving the block ends it if it still runs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running():
            self.interrupt()


def _as_child(head: int) -> None:
    """Make this process one that the head can stop.

    A dead head must not leave a second, unwatched one behind. Supervisors outlive it and are waited for.
    A head that a script starts in the background ignores SIGINT, and so would its children, which it ends by SIGINT.
    """
    linux.die_with_parent(head)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


_MOST_FOLLOWERS = 3


def follow(folder: SweepFolder, tracking_uri: str | None) -> Child:
    """Start a publisher that goes on until it is finished, or until this process ends."""
    return _start(folder, tracking_uri, "--follow", "--until-pid", str(os.getpid()))


def finish(publisher: Child, folder: SweepFolder, tracking_uri: str | None) -> None:
    """Have the publisher copy what is left, and end. Where a signal ends it early, another one does the rest.

    After a few that ended so, its log says by which signal: `last_line` reads there why MLflow lacks something.
    """
    publisher.finish()
    for _ in range(_MOST_FOLLOWERS):
        if publisher.code > 0 or _has_all(folder, tracking_uri):
            break
        with _start(folder, tracking_uri) as publisher:
            publisher.wait()
    if publisher.code < 0:
        with folder.publish_log.open("a", encoding="utf-8") as log:
            log.write(f"\nthe process that copies was ended by {signal.Signals(-publisher.code).name}\n")


def complaints(publisher: Child) -> list[str]:
    """Return what keeps the publisher from its work while the sweep is measured: the store, or its own early end."""
    if not publisher.running() and publisher.code > 0:
        return [f"{_why(publisher.log) or f'the process that copies ended with {publisher.code}'}{SWEEP_CONTINUES}"]
    return [line for line in tail_lines(publisher.log) if line.endswith(SWEEP_CONTINUES)]


def _why(log: Path) -> str | None:
    """Return the last that a publisher said, without the end of its sentence."""
    said = [line for line in tail_lines(log) if line.strip()]
    return said[-1].removeprefix("error: ").removesuffix(SWEEP_CONTINUES).rstrip(".") if said else None


def last_line(folder: SweepFolder, tracking_uri: str | None) -> tuple[str, bool]:
    """Return where the results are in MLflow, or why it has not got all of them; and whether the copy is complete.

    Where MLflow is not installed, nobody expects them there.
    """
    if _has_all(folder, tracking_uri):
        return f"MLflow: {_command(tracking_uri, 'ui')}", True
    installed = importlib.util.find_spec("mlflow") is not None
    reason = _why(folder.publish_log) if installed else "it is not installed here (pip install mlflow)"
    catch_up = _command(tracking_uri, "publish", folder.name)
    has_remedy = reason is not None and "--anew" in reason  # a plain `publish` would be refused again
    return (
        f"MLflow has not got everything: {reason or 'nothing was copied yet'}"
        + ("" if has_remedy else f". To catch up: {catch_up}"),
        not installed,
    )


def _command(tracking_uri: str | None, *words: str) -> str:
    """Return a command on the store that was asked for, without the password in its address."""
    store = ["--tracking-uri", masked(tracking_uri)] if tracking_uri else []
    return shlex.join(["accelsweep", *words, *store])


def _start(folder: SweepFolder, tracking_uri: str | None, *options: str) -> Child:
    command = [sys.executable, "-P", "-m", "accelsweep.tracking.live_publishing", str(folder.root), *options]
    variables = {"MLFLOW_TRACKING_URI": tracking_uri} if tracking_uri else {}
    return Child.start(command, cwd=folder.home, log=folder.publish_log, variables=variables)


def _has_all(folder: SweepFolder, tracking_uri: str | None) -> bool:
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return up_to_date(folder, tracking_uri)
    return True  # there is nothing to copy


# The fork server of local sweeps: torch and Lightning are imported once, not once in each block.

_LIBRARIES = ("OMP_NUM", "GOTO_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")

JOB_VARIABLES = {f"{library}_THREADS": "1" for library in _LIBRARIES}
"""The variables that Snakemake gives to a job of one thread (snakemake/shell.py), as a block is one."""


@contextlib.contextmanager
def fork_server(home: Path, log: Path, plans: Iterable[Plan]) -> Iterator[None]:
    """Run a fork server for the jobs that are started in the with-block, if runs of a plan are forked on this machine.

    A server that an outer with-block or process runs is used instead of another one.
    """
    if sys.platform != "linux" or FORK_SERVER_VARIABLE in os.environ or not any(map(_forks_here, plans)):
        yield
        return
    name, server = start(home, log, JOB_VARIABLES)
    os.environ[FORK_SERVER_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[FORK_SERVER_VARIABLE]
        server.finish()


def _forks_here(plan: Plan) -> bool:
    forked = any(setting.config.launcher == "fork" for setting in plan.settings)
    return forked and plan.manifest.site.scheduler == "local"


def start(home: Path, log: Path, variables: Mapping[str, str]) -> tuple[str, Child]:
    """Start a fork server in `home` with `variables` in its environment; return the name of its socket and its process.

    It can be asked at once, and answers when it has imported torch.
    """
    name = f"accelsweep-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(name))
        listener.listen()
        command = [sys.executable, "-P", "-m", "accelsweep.executor.fork_server", str(listener.fileno())]
        descriptors = (listener.fileno(),)
        return name, Child.start(command, cwd=home, log=log, variables=variables, descriptors=descriptors)


# The temporary files of a sweep's processes: in a folder of its own, so that those of a kill can be removed.

_VARIABLE = "TMPDIR"


@contextlib.contextmanager
def own_temporary_folder(folder: SweepFolder, site: Site) -> Iterator[Path | None]:
    """Return a folder for temporary files that is empty before the with-block and gone after it.

    Call it while holding the sweep. On one machine TMPDIR names it to all that is started in the with-block. On a
    cluster sbatch would hand the variable to jobs on other nodes, which lack the folder. There only Snakemake is told.
    Where TMPDIR is itself too long for sockets, the folder lies elsewhere. Everything stays as it is where only our own
    name makes it too long, and where the folder cannot be ours: None. Raises InputError where no place is short enough.
    """
    place = _place(folder)
    if len(str(place)) > MAX_TMPDIR_LENGTH or not _emptied(folder, place):
        yield None
        return
    try:
        with _told(place) if site.scheduler == "local" else contextlib.nullcontext():
            yield place
    finally:
        remove_temporary_folder(folder, place)


@contextlib.contextmanager
def _told(place: Path) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _place(folder: SweepFolder) -> Path:
    """Return the folder's path: below the user's TMPDIR, or below another place where that is too long for sockets."""
    name = temporary_folder_name(folder)
    usual = tempfile.gettempdir()
    if len(usual) <= MAX_TMPDIR_LENGTH:
        return Path(usual, name)
    if (short := next((place for place in SHORT_PLACES if os.access(place, os.W_OK | os.X_OK)), None)) is None:
        raise InputError(
            f"{tmpdir_too_long(usual)}. Nor can {' or '.join(SHORT_PLACES)} be written to: set TMPDIR to a shorter path"
        )
    return Path(short, name)


def _emptied(folder: SweepFolder, place: Path) -> bool:
    """Return whether the folder is there, ours alone, and without files of the dead."""
    remove_temporary_folder(folder, place)
    try:
        write_owner_file(folder, place)
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022

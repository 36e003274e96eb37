"""Child processes of the driver, such as the MLflow publisher and the fork server, and their temporary files."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import select
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from accelsweep.config.site import Site
from accelsweep.devices import linux
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.code_versions import ProjectEnvironment
from accelsweep.executor.launch import project_server_command
from accelsweep.executor.preflight import MAX_TMPDIR_LENGTH, tmpdir_too_long
from accelsweep.files import tail_lines
from accelsweep.fork_client import has_project_server, project_server
from accelsweep.installation import worker_folder
from accelsweep.ipc import FORK_SERVER_VARIABLE, PROJECT_SERVERS_VARIABLE, listening
from accelsweep.records.cleanup import SHORT_PLACES, remove_temporary_folder, temporary_folder_name, write_owner_file
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.temporary_folders import temporary_folder
from accelsweep.tracking.links import view_path
from accelsweep.tracking.published_state import SWEEP_CONTINUES, published_sweeps, up_to_date
from accelsweep.tracking.store_uri import is_server, resolve_uri, without_login

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan

_GRACE_SECONDS = 60.0


class ChildProcess:
    """A command running in its own session. It dies with this process, and its output is written to a log file."""

    def __init__(
        self,
        command: list[str],
        *,
        cwd: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start `command` in `cwd`, overwriting `log` with its output.

        Pass secrets through `environment` (by default, the environment of this process), because arguments are visible
        in process listings. The child inherits `descriptors` under the same numbers.
        """
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
                preexec_fn=partial(_set_up_child, os.getpid()),  # noqa: PLW1509 - we have one thread
            )

    def wait(self) -> int:
        """Wait for the process to end; return its exit code."""
        return self._process.wait()

    def running(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    def sleep(self, seconds: float) -> None:
        """Sleep, on Linux not longer than the process runs."""
        if not self.running():
            return
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # another system, or a kernel before Linux 5.3
            time.sleep(seconds)
            return
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)

    def interrupt(self) -> None:
        """Send SIGINT to the process group, as Ctrl-C would, and wait; kill the group if it takes over a minute."""
        self._signal_group(signal.SIGINT)
        self._wait_or_kill()

    def terminate(self) -> None:
        """Send SIGTERM to the process and wait; kill its group if it takes over a minute."""
        if self.running():
            self._process.terminate()
        self._wait_or_kill()

    def kill(self) -> None:
        """Kill the process group."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def _wait_or_kill(self) -> None:
        try:
            self._process.wait(_GRACE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C kills it immediately
            self.kill()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.running():
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        """Return the process, which is interrupted at the end of the with-block if it is still running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running():
            self.interrupt()


def _set_up_child(driver: int) -> None:
    """Make the child die with the driver and handle SIGINT even if the driver ignores it (in a background script)."""
    linux.die_with_parent(driver)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


_MAX_PUBLISHERS = 3


def start_publisher(folder: SweepFolder, tracking_uri: str | None) -> ChildProcess:
    """Start a publisher, which copies finished runs to MLflow until it is terminated or this process ends."""
    return _start_publisher(folder, tracking_uri, "--follow", "--until-pid", str(os.getpid()))


def finish_publishing(publisher: ChildProcess, folder: SweepFolder, tracking_uri: str | None) -> None:
    """Let the publisher copy the remaining runs and exit; if a signal kills it, restart it at most a few times.

    If the last publisher was killed as well, the signal's name is appended to its log, from which `mlflow_summary`
    reports it.
    """
    publisher.terminate()
    for _ in range(_MAX_PUBLISHERS):
        if publisher.wait() > 0 or _is_published(folder, tracking_uri):
            break
        with _start_publisher(folder, tracking_uri) as publisher:
            publisher.wait()
    if (code := publisher.wait()) < 0:
        with folder.publish_log.open("a", encoding="utf-8") as log:
            log.write(f"\nthe publisher was killed by {signal.Signals(-code).name}\n")


def publisher_warnings(publisher: ChildProcess) -> list[str]:
    """Return the problems that a running publisher reports about its store, or why the publisher failed."""
    if not publisher.running() and (code := publisher.wait()) > 0:
        return [f"{_last_message(publisher.log) or f'the publisher exited with code {code}'}{SWEEP_CONTINUES}"]
    return [line for line in tail_lines(publisher.log) if line.endswith(SWEEP_CONTINUES)]


def mlflow_summary(folder: SweepFolder, tracking_uri: str | None) -> tuple[str, bool]:
    """Return how to open the results in MLflow or why they are incomplete there, and whether that is expected.

    Incomplete results are expected if MLflow is not installed.
    """
    if _is_published(folder, tracking_uri):
        return how_to_open_mlflow(folder, tracking_uri), True
    installed = importlib.util.find_spec("mlflow") is not None
    reason = _last_message(folder.publish_log) if installed else "it is not installed here (pip install mlflow)"
    has_remedy = reason is not None and "--anew" in reason  # a plain `publish` would be rejected again
    remedy = "" if has_remedy else f". To catch up: {_command(tracking_uri, 'publish', folder.name)}"
    return f"MLflow is incomplete: {reason or 'nothing has been copied yet'}{remedy}", not installed


def how_to_open_mlflow(folder: SweepFolder, tracking_uri: str | None) -> str:
    """Return a line with a link to the runs on a tracking server, or the command that serves a file and links them."""
    uri = resolve_uri(folder.home, tracking_uri)
    published = published_sweeps(folder.home, uri).get(folder.name) if is_server(uri) else None
    if published is None:
        return f"MLflow: {_command(tracking_uri, 'ui')}"
    return f"MLflow: {without_login(uri)}{view_path(published.experiment_id)}"


def _command(tracking_uri: str | None, *words: str) -> str:
    return shlex.join(["accelsweep", *words, *(["--tracking-uri", masked(tracking_uri)] if tracking_uri else [])])


def _last_message(log: Path) -> str | None:
    lines = [line for line in tail_lines(log) if line.strip()]
    return lines[-1].removeprefix("error: ").removesuffix(SWEEP_CONTINUES).rstrip(".") if lines else None


def _start_publisher(folder: SweepFolder, tracking_uri: str | None, *options: str) -> ChildProcess:
    command = [sys.executable, "-P", "-m", "accelsweep.tracking.live_publishing", str(folder.root), *options]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": tracking_uri} if tracking_uri else None
    return ChildProcess(command, cwd=folder.home, log=folder.publish_log, environment=environment)


def _is_published(folder: SweepFolder, tracking_uri: str | None) -> bool:
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return up_to_date(folder, tracking_uri)
    return True  # there is nothing to copy


@dataclass(frozen=True)
class Interpreter:
    """An interpreter from which runs are forked: by default accelsweep's own, else one of the user's project.

    `package` is the Lightning package whose Trainer the project's script uses, if any. `imports_lightning` says whether
    the script may import Lightning at all.
    """

    python: str | None = None
    package: str | None = None
    imports_lightning: bool = field(default=True, compare=False)

    @property
    def variable(self) -> str:
        """The environment variable by which other processes find its fork server."""
        return FORK_SERVER_VARIABLE if self.python is None else PROJECT_SERVERS_VARIABLE

    @property
    def is_served(self) -> bool:
        """Whether this process or an outer command has a fork server for it."""
        if self.python is None:
            return self.variable in os.environ
        return has_project_server(self.python, self.package)


def forking_interpreters(plan: Plan) -> frozenset[Interpreter]:
    """Return the interpreters from which runs of the plan are forked on this machine."""
    manifest = plan.manifest
    if manifest.site.scheduler != "local":
        return frozenset()
    versions = {tree.version.id: tree.version.python for tree in (plan.versioned.trees if plan.versioned else ())}
    found = set[Interpreter]()
    for config in (setting.config for setting in plan.settings):
        if config.launcher != "fork" or config.whole_process:
            continue
        python = None if config.version_id is None else versions.get(config.version_id)
        if manifest.entry is None or config.entry is None:
            found |= {Interpreter()} if python is None else set()
            continue
        python = python or manifest.entry.python
        found.add(Interpreter(python, config.entry.package) if python is not None else Interpreter())
    return frozenset(found)


class ForkServers:
    """The fork servers of a command, which import torch and Lightning once instead of once per block.

    Their imports take longer than planning and Snakemake's start, so they are started as soon as runs are expected.
    They end with the with-block. `log` receives their output, if there is any; set it once the sweep is known.
    """

    def __init__(self, home: Path) -> None:
        """No server is started yet."""
        self.log: Path | None = None
        self._home, self._output = home, b""
        self._running: dict[Interpreter, contextlib.ExitStack] = {}
        self._variables = set[str]()  # those that this object has set

    def start(self, interpreters: Collection[Interpreter]) -> None:
        """Start each server that neither this object nor an outer command is running."""
        for interpreter in interpreters:
            if sys.platform == "linux" and interpreter not in self._running and not interpreter.is_served:
                with contextlib.suppress(OSError), contextlib.ExitStack() as starting:  # runs do without a server
                    starting.enter_context(self._serving(interpreter))
                    self._running[interpreter] = starting.pop_all()

    def stop_others(self, interpreters: Collection[Interpreter] = ()) -> None:
        """End the servers that this object has started, except those of the given interpreters."""
        for interpreter in self._running.keys() - interpreters:
            self._running.pop(interpreter).close()

    @contextlib.contextmanager
    def _serving(self, interpreter: Interpreter) -> Iterator[None]:
        with temporary_folder("imports") as folder:  # torch puts a folder for compiled code in TMPDIR
            output, variables = folder / "output.log", {"TMPDIR": str(folder)}
            variable = interpreter.variable
            if variable not in os.environ:
                self._variables.add(variable)
            try:
                if interpreter.python is None:
                    os.environ[variable], server = start_fork_server(self._home, output, variables)
                else:
                    os.environ.setdefault(variable, f"accelsweep-{secrets.token_hex(16)}")
                    server = self._start_for_project(interpreter, interpreter.python, output, variables)
                try:
                    yield
                finally:
                    server.terminate()
                    self._keep(output.read_bytes())
            finally:
                if variable in self._variables and not any(each.variable == variable for each in self._running):
                    self._variables.remove(variable)
                    os.environ.pop(variable, None)

    def _start_for_project(
        self, interpreter: Interpreter, python: str, output: Path, variables: Mapping[str, str]
    ) -> ChildProcess:
        name = project_server(python, interpreter.package)
        assert name is not None, "the variable is set"
        project = ProjectEnvironment(python, worker_folder(output.parent), interpreter.package)
        environment = {**os.environ, **project.environment, **variables}
        with listening(name) as number:
            command = project_server_command(python, number, with_lightning=interpreter.imports_lightning)
            return ChildProcess(command, cwd=self._home, log=output, environment=environment, descriptors=(number,))

    def _keep(self, output: bytes) -> None:
        """Add a server's output to the log; if no server wrote anything, remove the log of an earlier command."""
        self._output += output
        if self.log is None:
            return
        if self._output:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(self._output)
        else:
            self.log.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_others()


def start_fork_server(home: Path, log: Path, variables: Mapping[str, str] | None = None) -> tuple[str, ChildProcess]:
    """Start a fork server in `home` with these additional `variables`; return its socket name and its process.

    Requests may be sent immediately; the server answers once it has imported torch.
    """
    name = f"accelsweep-{secrets.token_hex(16)}"
    with listening(name) as number:
        command = [sys.executable, "-P", "-m", "accelsweep.executor.fork_server", str(number)]
        environment = {**os.environ, **(variables or {})}
        return name, ChildProcess(command, cwd=home, log=log, environment=environment, descriptors=(number,))


@contextlib.contextmanager
def sweep_temporary_folder(folder: SweepFolder, site: Site) -> Iterator[Path | None]:
    """Provide an empty folder for the sweep's temporary files, and delete it after the with-block.

    The caller must hold the sweep's lock. On a single machine, TMPDIR points to the folder; on a cluster, sbatch would
    copy TMPDIR to nodes that lack the folder, so only Snakemake uses the folder. If TMPDIR is too long for socket
    paths, the folder is created elsewhere. Yields None and leaves TMPDIR unchanged if only our folder's name makes the
    path too long, or if the folder cannot be made private. Raises InputError if no available path is short enough.
    """
    place = _temporary_place(folder)
    if len(str(place)) > MAX_TMPDIR_LENGTH or not _make_private_folder(folder, place):
        yield None
        return
    before = os.environ.get("TMPDIR")
    try:
        if site.scheduler == "local":
            os.environ["TMPDIR"] = str(place)
        yield place
    finally:
        if before is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = before
        remove_temporary_folder(folder, place)


def _temporary_place(folder: SweepFolder) -> Path:
    default = tempfile.gettempdir()
    if len(default) <= MAX_TMPDIR_LENGTH:
        return Path(default, temporary_folder_name(folder))
    if (short := next((place for place in SHORT_PLACES if os.access(place, os.W_OK | os.X_OK)), None)) is None:
        raise InputError(
            f"{tmpdir_too_long(default)}, and {' and '.join(SHORT_PLACES)} are not writable: set TMPDIR to a "
            "shorter path"
        )
    return Path(short, temporary_folder_name(folder))


def _make_private_folder(folder: SweepFolder, place: Path) -> bool:
    """Create the folder, removing files left by dead processes; return whether only this user may write to it."""
    remove_temporary_folder(folder, place)
    try:
        write_owner_file(folder, place)
        place.mkdir(mode=0o700, exist_ok=True)
        status = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022

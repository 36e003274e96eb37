"""The backends that run a detached driver (a Slurm job, a systemd user unit or a tmux session) and report its state.

The keys `site.slurm.driver.*` configure the driver's job on Slurm.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel

from accelsweep.config.site import Site, Slurm
from accelsweep.driver.sweep_lock import BackgroundState
from accelsweep.errors import AccelsweepError, DamagedFile, InputError, NewerFile
from accelsweep.json_documents import AtLeast1, Document, Frozen, JobMemory
from accelsweep.plain_json import sha256_text
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers import slurm
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import Resources, ask
from accelsweep.schedulers.slurm import keys_for, offer, queue_limit, sbatch_options

BackendName = Literal["slurm", "systemd", "tmux"]


class DriverState(NamedTuple):
    """A `description` of where a detached driver runs, and whether it is still `pending`, with the `reason`."""

    description: str
    pending: bool = False
    reason: str = ""


class Submission(Document):
    """The last detached driver: its backend (`place`), its job, unit or session, and the `host` that submitted it."""

    kind: ClassVar[str] = "handed"

    place: BackendName
    name: str
    host: str
    since: str


class DriverExit(Document):
    """The exit code of a detached driver."""

    kind: ClassVar[str] = "driver_end"

    code: int


def last_submission(folder: SweepFolder) -> Submission | None:
    """Return the sweep's last detached driver, if any."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return Submission.read(folder.driver_file("handed"))
    return None


def driver_exit_code(folder: SweepFolder) -> int | None:
    """Return the exit code of the last detached driver; None if it has not ended or was killed."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return DriverExit.read(folder.driver_file("ended")).code
    return None


def driver_log(folder: SweepFolder) -> Path:
    """Return the path of the last detached driver's output."""
    return folder.root / "logs" / "driver.log"


class Backend(Protocol):
    """Runs drivers without a terminal. If `queues` is set, a driver may have to wait before it starts."""

    name: BackendName
    queues: bool

    @property
    def warning(self) -> str | None:
        """A warning for the user about what could end the driver unexpectedly."""

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError if the driver would be rejected, or would block the sweep's own jobs."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` with its output in the driver's log; return its ID, which is derived from `name`."""

    def state(self, driver_id: str) -> DriverState | None:
        """Return the driver's state; None if it has ended."""

    def stop_command(self, driver_id: str, *, pending: bool = False) -> str:
        """Return the shell command that interrupts the driver like Ctrl-C, or cancels a `pending` driver."""


class DriverJobOptions(Frozen):
    """`site.slurm.driver`: partition, time limit and memory of the driver's job."""

    partition: str | None = None
    minutes: AtLeast1 | None = None
    mem_mb: JobMemory | None = None


class DetachOptions(BaseModel):
    """`site.slurm` keys for detached drivers."""

    driver: DriverJobOptions | None = None


_DEFAULT_MEM_MB = 4000
"""Enough memory to run Snakemake, the publisher and the report simultaneously."""

_SIGNAL_SECONDS = 180

_MIN_SIGNAL_SECONDS = 20

_POLL_SECONDS = 1.0

_SQUEUE_TIMEOUT_SECONDS = 5.0

_REASON_TIMEOUT_SECONDS = 10.0
"""Slurm tries to start a job when it is submitted, and reports why it is pending soon afterwards."""

_MAX_AVOIDED_NODES = 8
"""Maximum number of nodes to exclude individually because the driver's job would block the sweep's jobs there."""


class SlurmBackend:
    """A job that runs the driver. When it reaches its time limit, another job takes over."""

    name: BackendName = "slurm"
    queues = True
    warning: str | None = None

    def __init__(self, slurm: Slurm | None = None, avoid: Sequence[str] = (), blocks: Sequence[str] = ()) -> None:
        """Store what `check` and `start` need: the site's options, nodes to `avoid`, and the sweep's exclusive jobs.

        `blocks` contains the sbatch options of the sweep's whole-node jobs, for which the driver must leave enough
        nodes free.
        """
        self._slurm, self._avoid, self._blocks = slurm or Slurm(), tuple(avoid), blocks
        self._options = DriverJobOptions.model_validate(self._slurm.driver or {})

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError if Slurm would reject the job, or if the job would block the sweep's own jobs.

        Nodes where it would block them are excluded from then on, as long as other nodes remain.
        """
        compared = len(self._avoid)
        for _ in range(_MAX_AVOIDED_NODES):
            offered = offer(shlex.join(self.sbatch_options(folder, name)))
            if not offered.accepted:
                break
            if not self._blocks_sweep(offered.nodes):
                return
            self._avoid = (*self._avoid, offered.nodes)
        if offered.accepted or offered.temporary:
            return
        remedy = "set site.slurm.driver.partition to a partition with other nodes"
        if len(self._avoid) > compared:
            raise InputError(
                f"the sweep's jobs take whole nodes, and the driver's job would occupy {self._avoid[-1]}, which they "
                f"need ({offered.message}): {remedy}, or leave out --detach"
            )
        if compared:
            raise InputError(
                f"Slurm refuses the driver's job ({offered.message}), which must not run on any of the {compared} "
                f"nodes that the fleet compares: if its partition has no other node, {remedy}"
            )
        raise InputError(
            f"Slurm refuses the driver's job ({offered.message}): change {self._keys(offered.message)}. To try it by "
            f"hand: {offered.command}"
        )

    def _blocks_sweep(self, node: str) -> bool:
        """Return whether some of the sweep's jobs could never start while the driver occupies this node."""
        offers = (offer(f"{options} --exclude={node}") for options in self._blocks if node)
        return any(not offered.accepted and not offered.temporary for offered in offers)

    def _keys(self, message: str) -> str:
        """Return the config keys, with their values, that Slurm's message about the driver's job refers to."""
        settings = []
        driver_keys = {"partition": "partition", "max_minutes": "minutes", "mem_mb": "mem_mb"}
        for key in keys_for(message):
            driver_key = driver_keys.get(key)
            value = None if driver_key is None else getattr(self._options, driver_key)
            if driver_key is not None and (key == "mem_mb" or value is not None):
                settings.append((f"driver.{driver_key}", value))
            else:
                site_key = "cpu_partition" if key == "partition" and self._slurm.has_cpu_partition else key
                settings.append((site_key, getattr(self._slurm, site_key)))
        return " or ".join(f"site.slurm.{key}" + ("" if value is None else f"={value}") for key, value in settings)

    def start(self, folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        """Submit a job that runs `command`, once the job `after` has ended; return its ID.

        Cancels the job and raises InputError if it, or the jobs that it must submit, could never start.
        """
        if after is not None and (successor := self._successor(name, after)) is not None:
            return successor
        submit = ("sbatch", *self.sbatch_options(folder, name, after), "--wrap", f"exec {shlex.join(command)}")
        try:
            job = ask(*submit, base=for_jobs(os.environ, self._slurm.secrets)).strip().partition(";")[0]
        except AccelsweepError as error:
            if queue_limit(str(error)) is None:
                raise
            raise AccelsweepError(
                f"{error}. Slurm accepts the driver's job when another job of yours has ended"
            ) from None
        if after is None and (why := self._why_hopeless(job)) is not None:
            ask("scancel", job)
            raise InputError(f"{why}. The driver's job {job} was cancelled, and nothing else was submitted")
        return job

    def _why_hopeless(self, job: str) -> str | None:
        """Return why the driver's job could never start, or could never submit another job; None if it can do both."""
        is_full = any(queue_limit(offered.message) for offered in map(offer, self._blocks[:1]))
        if is_full and not set(slurm.of_user()) - {job}:
            return (
                "Slurm's limits allow only the driver's job and no other job: leave out --detach, or use an "
                f"account or a QOS with a higher limit (site.slurm.account={self._slurm.account}, "
                f"site.slurm.qos={self._slurm.qos})"
            )
        deadline = time.monotonic() + _REASON_TIMEOUT_SECONDS
        while (state := self.state(job)) is not None and state.pending:
            if slurm.never_starts(state.reason) or (
                slurm.never_starts_alone(state.reason) and not slurm.of_user(slurm.HOLDING)
            ):
                return f"the driver's job could never start ({state.reason}): change {self._keys(state.reason)}"
            if state.reason not in ("None", "") or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return None

    def _successor(self, name: str, after: str) -> str | None:
        """Return the job that depends on `after`, if sbatch submitted it despite reporting a failure."""
        listing = ask("squeue", "--me", "--noheader", "--states=PENDING", f"--name={name}", "--format=%i|%E")
        rows = (line.partition("|") for line in listing.splitlines())
        return next(
            (job for job, _, dependency in rows if re.search(rf"\bafterany:{after}\b", dependency)),
            None,
        )

    @property
    def signal_seconds(self) -> int:
        """How many seconds before its time limit the driver is signalled; Slurm may be up to a minute early."""
        minutes = self._minutes
        if minutes is None:
            return _SIGNAL_SECONDS
        return max(_MIN_SIGNAL_SECONDS, min(_SIGNAL_SECONDS, 60 * minutes // 4))

    @property
    def _minutes(self) -> int | None:
        return self._options.minutes or self._slurm.max_minutes

    def sbatch_options(self, folder: SweepFolder, name: str, after: str | None = None) -> list[str]:
        """Return the options for sbatch, including a signal before the time limit and a requeue if the node fails."""
        options: dict[str, object] = {
            "--partition": self._options.partition or self._slurm.cpu_partition or self._slurm.partition,
            "--account": self._slurm.account,
            "--qos": self._slurm.qos,
            "--time": self._minutes,
            "--mem": f"{self._options.mem_mb or _DEFAULT_MEM_MB}M",
            "--signal": f"B:USR1@{self.signal_seconds}",
            "--exclude": ",".join(self._avoid) or None,
            "--dependency": after and f"afterany:{after}",
            "--job-name": name,
            "--comment": f"accelsweep driver {folder.name}",
            "--chdir": folder.home,
            "--output": str(driver_log(folder)).replace("%", "%%"),
        }
        fixed = ("--parsable", "--export=ALL", "--requeue", "--open-mode=append", "--nodes=1", "--ntasks=1")
        return [*fixed, *(f"{option}={value}" for option, value in options.items() if value is not None)]

    def state(self, driver_id: str) -> DriverState | None:
        """Return the job's state; None if it has ended. Raises AccelsweepError if Slurm does not answer."""
        try:
            listing = ask("squeue", "--noheader", f"--jobs={driver_id}", "--format=%i|%T|%r|%N")
        except AccelsweepError as error:
            if "Invalid job id" in str(error):  # Slurm forgets jobs some minutes after they end
                return None
            raise
        for line in listing.splitlines():
            job, state, reason, nodes = line.split("|", 3)
            if job == driver_id:
                description = f"Slurm job {job} {state} " + (f"on {nodes}" if nodes else f"({reason})")
                return DriverState(description, pending=state == "PENDING", reason=reason)
        return None

    def stop(self, driver_id: str, say: Callable[[str], None], *, patience_seconds: float) -> None:
        """Interrupt the driver as Ctrl-C would and wait for it to end; cancel its job if pending or too slow to end."""
        deadline, command = time.monotonic() + patience_seconds, ""
        while (state := self.state(driver_id)) is not None:
            previous = command
            command = self.stop_command(driver_id, pending=state.pending or time.monotonic() > deadline)
            if command != previous:
                say(f"stopping the driver, {state.description}: {command}")
                ask(*shlex.split(command))
            time.sleep(_POLL_SECONDS)

    def is_cancelled(self, driver_id: str) -> bool:
        """Return whether a job that is ending was cancelled; False if it will be requeued or Slurm does not answer.

        A job that is ending is `COMPLETING` regardless of the cause, and squeue cannot filter by the underlying state.
        However, a job that will be requeued is treated as pending, so its elapsed time (`%M`) is 0.
        """
        query = ("squeue", "--noheader", "--states=COMPLETING", f"--jobs={driver_id}", "--format=%M")
        with contextlib.suppress(AccelsweepError):
            return ask(*query, timeout_seconds=_SQUEUE_TIMEOUT_SECONDS).strip() not in ("", "0:00")
        return False

    def stop_command(self, driver_id: str, *, pending: bool = False) -> str:
        """Return the scancel command; a pending job has no process to signal."""
        return shlex.join(("scancel", driver_id) if pending else ("scancel", "--batch", "--signal=INT", driver_id))


class TmuxBackend:
    """A tmux session on a separate tmux server, so that it inherits the current environment."""

    name: BackendName = "tmux"
    queues = False
    warning: str | None = None

    def is_available(self) -> bool:
        """Return whether tmux is installed."""
        return shutil.which("tmux") is not None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Do nothing: `is_available` is sufficient."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a session; return the session's name."""
        session = re.sub(r"[^A-Za-z0-9_-]", "-", name)
        redirect = 'log=$1; shift; exec "$@" >>"$log" 2>&1'
        shell = ("/bin/sh", "-c", redirect, "sh", str(driver_log(folder)), *command)
        done = _tmux(session, "-f", "/dev/null", "new-session", "-d", "-s", session, "-c", str(folder.home), *shell)
        if done.returncode != 0:
            raise AccelsweepError(f"tmux could not start the driver: {done.stderr.strip()}")
        return session

    def state(self, driver_id: str) -> DriverState | None:
        """Return the session; None if it has ended."""
        exists = self.is_available() and _tmux(driver_id, "has-session", "-t", f"={driver_id}").returncode == 0
        return DriverState(f"tmux session {driver_id}") if exists else None

    def stop_command(self, driver_id: str, *, pending: bool = False) -> str:
        """Return the command that sends Ctrl-C."""
        del pending  # it starts at once
        return shlex.join(("tmux", "-L", driver_id, "send-keys", "C-c"))


def _tmux(server: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("tmux", "-L", server, *arguments), capture_output=True, text=True, check=False)  # noqa: S607


_STOP_TIMEOUT_SECONDS = 150
"""The time allowed for a driver to shut down before systemd kills it."""


class SystemdBackend:
    """A transient `systemd --user` unit. It outlives the terminal and, if lingering is enabled, the login session."""

    name: BackendName = "systemd"
    queues = False

    def is_available(self) -> bool:
        """Return whether a systemd user instance is running."""
        if shutil.which("systemd-run") is None:
            return False
        return _systemctl("is-system-running").stdout.strip() in ("running", "degraded", "starting")

    @property
    def warning(self) -> str | None:
        """A warning if logging out would end the driver."""
        if shutil.which("loginctl") is None:
            return None
        command = ("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
        linger = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return "it ends when your last session logs out, unless: loginctl enable-linger" if "no" in linger else None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Do nothing: `is_available` is sufficient."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a unit with the current environment; return the unit's name."""
        unit = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        properties = [f"Standard{stream}=append:{driver_log(folder)}" for stream in ("Output", "Error")]
        properties += ["KillMode=mixed", f"TimeoutStopSec={_STOP_TIMEOUT_SECONDS}"]
        systemd_run = ["systemd-run", "--user", "--quiet", "--collect", f"--unit={unit}"]
        systemd_run += [f"--working-directory={folder.home}", *(f"--property={value}" for value in properties)]
        # Names only: values on the command line would be visible in `ps`.
        systemd_run += [f"--setenv={key}" for key in os.environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key)]
        done = subprocess.run((*systemd_run, "--", *command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AccelsweepError(f"systemd could not start the driver: {done.stderr.strip()}")
        return unit

    def state(self, driver_id: str) -> DriverState | None:
        """Return the unit; None if it has ended."""
        if shutil.which("systemctl") is None:
            return None
        is_active = _systemctl("is-active", driver_id).stdout.strip() in ("active", "activating", "deactivating")
        return DriverState(f"systemd user unit {driver_id}") if is_active else None

    def stop_command(self, driver_id: str, *, pending: bool = False) -> str:
        """Return the command that stops the unit."""
        del pending  # it starts at once
        return shlex.join(("systemctl", "--user", "stop", driver_id))


def _systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("systemctl", "--user", *arguments), capture_output=True, text=True, check=False)  # noqa: S607


def select_backend(site: Site, avoid: Sequence[str] = (), blocks: Iterable[Resources] = ()) -> Backend:
    """Return Slurm for a Slurm site, else systemd or tmux on this machine. Raises InputError if none is available.

    On Slurm, the driver does not run on nodes in `avoid`, and leaves enough whole nodes for `blocks`.
    """
    if site.scheduler == "slurm":
        return SlurmBackend(site.slurm, avoid, exclusive_job_options(site, blocks))
    for backend in (SystemdBackend(), TmuxBackend()):
        if backend.is_available():
            return backend
    raise InputError(
        "--detach needs systemd --user or tmux, but this machine has neither: install tmux, or leave out --detach"
    )


def backend_of(submission: Submission) -> Backend:
    """Return a driver's backend."""
    backends: dict[str, Backend] = {"slurm": SlurmBackend(), "systemd": SystemdBackend(), "tmux": TmuxBackend()}
    return backends[submission.place]


def exclusive_job_options(site: Site, blocks: Iterable[Resources]) -> list[str]:
    """Return the sbatch options of the whole-node jobs that can run on any node, once for each distinct job size."""
    sizes = dict.fromkeys(
        block for block in blocks if block.node is None and site.of_kind(block.node_kind).slurm.exclusive
    )
    return [sbatch_options(size, site.of_kind(size.node_kind).slurm) for size in sizes]


def driver_name(backend: Backend, folder: SweepFolder) -> str:
    """Return the name of the sweep's driver, unique to its folder if the backend needs unique names."""
    if backend.queues:
        return f"accelsweep-driver-{folder.name}"
    return f"accelsweep-{folder.name}-{sha256_text(str(folder.root.resolve()))[:8]}"


def stop_hints(backend: Backend, driver_id: str, *, pending: bool) -> list[str]:
    """Return how to stop the driver while it is pending and once it is running."""
    cancel = [f"stop it while it is pending: {backend.stop_command(driver_id, pending=True)}"] if pending else []
    when = " once it runs" if pending else ""
    return [*cancel, f"stop it{when}, like Ctrl-C: {backend.stop_command(driver_id)}"]


def active_submission(folder: SweepFolder) -> tuple[Submission, DriverState] | None:
    """Return the pending or running detached driver with its state, if any.

    Raises AccelsweepError if Slurm does not answer.
    """
    submission = last_submission(folder)
    if submission is None or driver_exit_code(folder) is not None:
        return None
    if submission.place != "slurm" and submission.host != socket.gethostname():
        # Another machine's systemd or tmux cannot be queried; only the driver's lock shows whether it is alive.
        is_alive = live_lock(folder.driver_file("lock")) is not None
        state = DriverState(f"{submission.place} on {submission.host}") if is_alive else None
    else:
        state = backend_of(submission).state(submission.name)
    return (submission, state) if state is not None else None


class DetachedDriver:
    """The driver that `--detach` started for a sweep, as a `driver.sweep_lock.BackgroundDriver`."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder

    def state(self) -> BackgroundState | None:
        """Return the driver's state; None if no driver was started."""
        submission = last_submission(self._folder)
        if submission is None:
            return None
        try:
            active = active_submission(self._folder)
            state = active[1].description if active else None
        except AccelsweepError as error:
            state = f"not known: {error}"
        return BackgroundState(
            **submission.body(),
            state=state,
            code=driver_exit_code(self._folder),
            follow=f"accelsweep attach {self._folder.name}",
        )

    def conflict(self) -> str | None:
        """Return why this process must not drive the sweep, if a Slurm job already drives it or is queued to do so.

        If Slurm is not installed on this machine, there is no such job, because the sweep was copied here. Raises
        AccelsweepError if Slurm does not answer.
        """
        if (active := self._other_job()) is None:
            return None
        submission, state = active
        return (
            f"the driver of sweep {self._folder.name!r} runs in the background: {state.description}. Follow it "
            f"(accelsweep attach {self._folder.name}), or stop it: --cancel-old, or scancel {submission.name}"
        )

    def end(self, say: Callable[[str], None], patience_seconds: float) -> None:
        """Stop the driver's job as Ctrl-C would."""
        if active := self._other_job():
            SlurmBackend().stop(active[0].name, say, patience_seconds=patience_seconds)

    def _other_job(self) -> tuple[Submission, DriverState] | None:
        """Return the active Slurm job that drives the sweep; None if there is none or this process belongs to it."""
        submission = last_submission(self._folder)
        if submission is None or submission.place != "slurm" or shutil.which("squeue") is None:
            return None
        if submission.name == os.environ.get("SLURM_JOB_ID"):
            return None
        try:
            return active_submission(self._folder)
        except AccelsweepError as error:
            raise AccelsweepError(
                f"it is unknown whether job {submission.name}, the driver of sweep {self._folder.name!r}, is still "
                f"active: {error}. Try again when Slurm answers"
            ) from None

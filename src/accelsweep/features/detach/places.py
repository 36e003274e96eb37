"""The places that a driver can be handed over to, and whether one that was handed over is there."""

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

# The state of a driver that was handed over: where it went, and how it ended.

PlaceKind = Literal["slurm", "systemd", "tmux"]


class Whereabouts(NamedTuple):
    """The holder of a detached driver, in words, and whether the driver has not begun there yet, for which `reason`."""

    words: str
    waits: bool = False
    reason: str = ""


class StartedDriver(Document):
    """The last driver that was handed over. `name` is that of its job, unit or session, `host` where that was asked."""

    kind: ClassVar[str] = "handed"

    place: PlaceKind
    name: str
    host: str
    since: str


class DriverExit(Document):
    """The exit code of a detached driver."""

    kind: ClassVar[str] = "head_end"

    code: int


def started_driver(folder: SweepFolder) -> StartedDriver | None:
    """Return the last driver that was handed over, None where there was none."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return StartedDriver.read(folder.driver_file("handed"))
    return None


def driver_log(folder: SweepFolder) -> Path:
    """Return the file with the output of the last detached driver."""
    return folder.root / "logs" / "head.log"


def driver_exit_code(folder: SweepFolder) -> int | None:
    """Return the exit code of the last detached driver, None where it has not ended, or was killed."""
    with contextlib.suppress(FileNotFoundError, DamagedFile, NewerFile):
        return DriverExit.read(folder.driver_file("ended")).code
    return None


# The job of a driver that was handed over to a cluster.


class DetachedHead(Frozen):
    """The job that a driver gets by `--detach`: its partition, its time limit, and its memory."""

    partition: str | None = None
    minutes: AtLeast1 | None = None
    mem_mb: JobMemory | None = None


class DetachOptions(BaseModel):
    """Keys of `site.slurm`: the job of a driver that runs in the background."""

    head: DetachedHead | None = None


# A driver in a Slurm job of its own, which submits the jobs of the sweep.

_LEAST_MB = 4000
"""Snakemake, the publisher and the report at once take less."""

_NOTICE_SECONDS = 180

_SHORTEST_NOTICE = 20

_LOOK_SECONDS = 1.0

_ANSWER_SECONDS = 5.0

_FORGOTTEN = "Invalid job id"

_REASON_SECONDS = 10.0
"""Slurm tries to start a job when it is submitted, and has its reason to wait soon after."""

_MOST_NODES = 8
"""So many nodes are tried for a driver that is in the way of its sweep's jobs."""


class DriverJob:
    """Jobs that run a driver. One whose time is up is followed by another one."""

    kind: PlaceKind = "slurm"
    waits = True
    caution: str | None = None

    def __init__(self, slurm: Slurm | None = None, avoid: Sequence[str] = (), blocks: Sequence[str] = ()) -> None:
        """`slurm` is how the site takes jobs, and no driver holds a node to `avoid`; only `start` needs them.

        `blocks` are sbatch's options of the sweep's jobs that take whole nodes: a driver must leave them enough.
        """
        self._slurm, self._avoid, self._blocks = slurm or Slurm(), tuple(avoid), blocks

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError where Slurm would refuse the job, or where it would be in the way of the sweep's own jobs.

        Nodes where it would be in their way are avoided from here on, as long as there are others.
        """
        compared = len(self._avoid)
        for _ in range(_MOST_NODES):
            offered = offer(shlex.join(self._options(folder, name, None)))
            if not offered.accepted:
                break
            if not self._in_the_way(offered.nodes):
                return
            self._avoid = (*self._avoid, offered.nodes)
        if offered.accepted or offered.temporary:
            return
        another = "site.slurm.head.partition names a partition with other nodes"
        if len(self._avoid) > compared:
            raise InputError(
                f"the sweep's jobs take whole nodes, and the driver's job would hold {self._avoid[-1]}, which they "
                f"need ({offered.message}): {another}; or leave --detach out"
            )
        if compared:
            raise InputError(
                f"Slurm refuses the driver's job ({offered.message}). A fleet's driver holds none of the {compared} "
                f"nodes that it compares. If its partition has no other, {another}"
            )
        raise InputError(
            f"Slurm refuses the driver's job ({offered.message}): change {self._keys(offered.message)}. "
            f"To try it by hand: {offered.command}"
        )

    def _in_the_way(self, node: str) -> bool:
        """Return whether jobs of the sweep could not start at all while the driver holds this node."""
        away = (offer(f"{options} --exclude={node}") for options in self._blocks if node)
        return any(not offered.accepted and not offered.temporary for offered in away)

    def _keys(self, words: str) -> str:
        """Return the keys that Slurm's words on the driver's job are about, with their values."""
        options, slurm, found = DetachedHead.model_validate(self._slurm.head or {}), self._slurm, []
        own = {"partition": "partition", "max_minutes": "minutes", "mem_mb": "mem_mb"}
        for key in keys_for(words):
            if key in own and (key == "mem_mb" or getattr(options, own[key]) is not None):
                found.append((f"head.{own[key]}", getattr(options, own[key])))
            else:
                named = "cpu_partition" if key == "partition" and slurm.cpu_apart else key
                found.append((named, getattr(slurm, named)))
        return " or ".join(f"site.slurm.{key}" + ("" if value is None else f"={value}") for key, value in found)

    def start(self, folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        """Submit a job that becomes `command`, to begin when the job `after` has ended; return its number.

        Raises InputError where the job, or those that it is to submit, could never start; nothing is left in the queue
        then.
        """
        if after is not None and (there := self._successor(name, after)) is not None:
            return there
        submit = ("sbatch", *self._options(folder, name, after), "--wrap", f"exec {shlex.join(command)}")
        try:
            number = ask(*submit, base=for_jobs(os.environ, self._slurm.secrets)).strip().partition(";")[0]
        except AccelsweepError as error:
            if queue_limit(str(error)) is None:
                raise
            raise AccelsweepError(
                f"{error}. Slurm takes the driver's job when another job of yours has ended"
            ) from None
        if after is None and (why := self._hopeless(number)) is not None:
            ask("scancel", number)
            raise InputError(f"{why}. The driver's job {number} is cancelled, and nothing else was submitted")
        return number

    def _hopeless(self, number: str) -> str | None:
        """Return why the driver's job could never start, or never submit another one; None where it may."""
        full = any(queue_limit(offered.message) for offered in map(offer, self._blocks[:1]))
        if full and not set(slurm.of_user()) - {number}:
            return (
                "Slurm lets you submit the driver's job and no other one beside it: leave --detach out, or take an "
                f"account or a QOS with room for more (site.slurm.account={self._slurm.account}, "
                f"site.slurm.qos={self._slurm.qos})"
            )
        deadline = time.monotonic() + _REASON_SECONDS
        while (state := self.state(number)) is not None and state.waits:
            if slurm.never_starts(state.reason) or (
                slurm.never_starts_alone(state.reason) and not slurm.of_user(slurm.HOLDING)
            ):
                return f"the driver's job could never start ({state.reason}): change {self._keys(state.reason)}"
            if state.reason not in ("None", "") or time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)
        return None

    def _successor(self, name: str, after: str) -> str | None:
        """Return the job that waits for the end of `after`: sbatch may have submitted it, and said otherwise."""
        listing = ask("squeue", "--me", "--noheader", "--states=PENDING", f"--name={name}", "--format=%i|%E")
        rows = (line.partition("|") for line in listing.splitlines())
        return next((number for number, _, waits in rows if re.search(rf"\bafterany:{after}\b", waits)), None)

    @property
    def notice_seconds(self) -> int:
        """A driver gets a signal this many seconds before its time limit; Slurm may be a minute early."""
        minutes = self._minutes
        return _NOTICE_SECONDS if minutes is None else max(_SHORTEST_NOTICE, min(_NOTICE_SECONDS, 60 * minutes // 4))

    @property
    def _head(self) -> DetachedHead:
        return DetachedHead.model_validate(self._slurm.head or {})

    @property
    def _minutes(self) -> int | None:
        return self._head.minutes or self._slurm.max_minutes

    def _options(self, folder: SweepFolder, name: str, after: str | None) -> list[str]:
        """Return sbatch's options. `--signal` is the notice before the time limit; a lost node queues the job again."""
        options, slurm = self._head, self._slurm
        asked: dict[str, object] = {
            "--partition": options.partition or slurm.cpu_partition or slurm.partition,
            "--account": slurm.account,
            "--qos": slurm.qos,
            "--time": self._minutes,
            "--mem": f"{options.mem_mb or _LEAST_MB}M",
            "--signal": f"B:USR1@{self.notice_seconds}",
            "--exclude": ",".join(self._avoid) or None,
            "--dependency": after and f"afterany:{after}",
            "--job-name": name,
            "--comment": f"accelsweep driver {folder.name}",
            "--chdir": folder.home,
            "--output": str(driver_log(folder)).replace("%", "%%"),
        }
        fixed = ("--parsable", "--export=ALL", "--requeue", "--open-mode=append", "--nodes=1", "--ntasks=1")
        return [*fixed, *(f"{option}={value}" for option, value in asked.items() if value is not None)]

    def state(self, name: str) -> Whereabouts | None:
        """Return the job, None where it has ended. Raises AccelsweepError if Slurm does not answer."""
        try:
            listing = ask("squeue", "--noheader", f"--jobs={name}", "--format=%i|%T|%r|%N")
        except AccelsweepError as error:
            if _FORGOTTEN in str(error):
                return None
            raise
        for line in listing.splitlines():
            number, state, reason, nodes = line.split("|", 3)
            if number == name:
                words = f"Slurm's job {name} {state} " + (f"on {nodes}" if nodes else f"({reason})")
                return Whereabouts(words, waits=state == "PENDING", reason=reason)
        return None

    def end(self, name: str, say: Callable[[str], None], *, grace_seconds: float) -> None:
        """End the job as Ctrl-C ends a driver, or before it begins; cancel it where it takes longer than that."""
        deadline, asked = time.monotonic() + grace_seconds, ""
        while (state := self.state(name)) is not None:
            at_once = state.waits or time.monotonic() > deadline
            command = ["scancel", name] if at_once else shlex.split(self.end_with(name, waits=False))
            if asked != (asked := shlex.join(command)):
                say(f"ending the driver, {state.words}: {asked}")
                ask(*command)
            time.sleep(_LOOK_SECONDS)

    def cancelled(self, name: str) -> bool:
        """Return whether the job is being ended for good; False where it starts again, or nobody answers in time.

        A job that is being ended shows as `COMPLETING`, whatever ends it, and no filter of squeue sees the state below
        that. But one that is to be queued again counts as waiting, and so has used no time (`%M`).
        """
        asked = ("squeue", "--noheader", "--states=COMPLETING", f"--jobs={name}", "--format=%M")
        with contextlib.suppress(AccelsweepError):
            return ask(*asked, timeout_seconds=_ANSWER_SECONDS).strip() not in ("", "0:00")
        return False

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the driver; a job that waits has no process to send a signal to."""
        return shlex.join(("scancel", name) if waits else ("scancel", "--batch", "--signal=INT", name))


# A driver in a tmux session, for a machine without a user's systemd.

_INTO_LOG = 'log=$1; shift; exec "$@" >>"$log" 2>&1'


class Tmux:
    """Sessions of tmux, each with a server of its own, which has the environment of the command that starts it."""

    kind: PlaceKind = "tmux"
    waits = False
    caution: str | None = None

    def here(self) -> bool:
        """Return whether drivers can be handed over to it on this machine."""
        return shutil.which("tmux") is not None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise nothing: what this machine lacks is known before."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a session; return the session's name."""
        session = re.sub(r"[^A-Za-z0-9_-]", "-", name)
        shell = ("/bin/sh", "-c", _INTO_LOG, "sh", str(driver_log(folder)), *command)
        told = _tmux(session, "-f", "/dev/null", "new-session", "-d", "-s", session, "-c", str(folder.home), *shell)
        if told.returncode != 0:
            raise AccelsweepError(f"tmux could not start the driver: {told.stderr.strip()}")
        return session

    def state(self, name: str) -> Whereabouts | None:
        """Return the session, None where it has ended."""
        there = self.here() and _tmux(name, "has-session", "-t", f"={name}").returncode == 0
        return Whereabouts(f"tmux session {name}") if there else None

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the driver."""
        del waits  # it begins at once
        return shlex.join(("tmux", "-L", name, "send-keys", "C-c"))


def _tmux(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("tmux", "-L", name, *words), capture_output=True, text=True, check=False)  # noqa: S607


# A driver in a unit of the user's systemd.

_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_STOP_SECONDS = 150
"""The time that a driver has to put its work down, before systemd kills it."""


class UserUnit:
    """Transient units of `systemd --user`, which outlive the terminal; with lingering, the login too."""

    kind: PlaceKind = "systemd"
    waits = False

    def here(self) -> bool:
        """Return whether this user has a systemd that runs."""
        if shutil.which("systemd-run") is None:
            return False
        return _systemctl("is-system-running").stdout.strip() in ("running", "degraded", "starting")

    @property
    def caution(self) -> str | None:
        """Words for the user where a logout would end the driver."""
        if shutil.which("loginctl") is None:
            return None
        asked = ("loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value")
        lingers = subprocess.run(asked, capture_output=True, text=True, check=False)
        return "it ends when you log out for good, unless: loginctl enable-linger" if "no" in lingers.stdout else None

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise nothing: what this machine lacks is known before."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` in a unit, with our environment; return the unit's name."""
        unit = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        properties = [f"Standard{stream}=append:{driver_log(folder)}" for stream in ("Output", "Error")]
        properties += ["KillMode=mixed", f"TimeoutStopSec={_STOP_SECONDS}"]
        asked = [
            "systemd-run",
            "--user",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            f"--working-directory={folder.home}",
        ]
        asked += [f"--property={one}" for one in properties]
        asked += [f"--setenv={name}" for name in os.environ if _NAMED.fullmatch(name)]  # values stay out of `ps`
        told = subprocess.run((*asked, "--", *command), capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise AccelsweepError(f"systemd could not start the driver: {told.stderr.strip()}")
        return unit

    def state(self, name: str) -> Whereabouts | None:
        """Return the unit, None where it has ended."""
        if shutil.which("systemctl") is None:
            return None
        there = _systemctl("is-active", name).stdout.strip() in ("active", "activating", "deactivating")
        return Whereabouts(f"unit {name} of your systemd") if there else None

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the driver."""
        del waits  # it begins at once
        return shlex.join(("systemctl", "--user", "stop", name))


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("systemctl", "--user", *words), capture_output=True, text=True, check=False)  # noqa: S607


class Place(Protocol):
    """What runs drivers without a terminal. `waits`: it may start one later. `caution` is a message for the user."""

    kind: PlaceKind
    waits: bool

    @property
    def caution(self) -> str | None:
        """The events that could end the driver there without being asked."""

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError if it would refuse the driver of this sweep, or the driver would block the sweep's jobs."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        """Start `command` under about this `name`, its words in the driver's log; return what `state` knows it by."""

    def state(self, name: str) -> Whereabouts | None:
        """Return what holds the driver, None where it has ended."""

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the shell command that is Ctrl-C for the driver, or that ends it while it `waits`."""


def place_for(site: Site, avoid: Sequence[str] = (), blocks: Iterable[Resources] = ()) -> Place:
    """Return where a driver of this site goes: to the cluster, to the user's systemd, or to tmux. Raises InputError.

    On the cluster it goes to none of the nodes to `avoid`, and where it leaves enough whole nodes for these `blocks`.
    """
    if site.scheduler == "slurm":
        return DriverJob(site.slurm, avoid, whole_nodes(site, blocks))
    for place in (UserUnit(), Tmux()):
        if place.here():
            return place
    raise InputError(
        "--detach needs tmux, or a systemd of your own (systemctl --user), and this machine has neither: "
        "install tmux, or leave --detach out"
    )


def ways_to_end(place: Place, name: str, *, waits: bool) -> list[str]:
    """Return how the user ends the driver: now, and later where it has not begun."""
    now = [f"end it while it waits: {place.end_with(name, waits=True)}"] if waits else []
    return [*now, f"end it{' once it runs' if waits else ''}, as Ctrl-C would: {place.end_with(name)}"]


def whole_nodes(site: Site, blocks: Iterable[Resources]) -> list[str]:
    """Return sbatch's options for each size of these blocks that takes whole nodes."""
    anywhere = (block for block in blocks if block.node is None)
    sizes = dict.fromkeys(block for block in anywhere if site.of_kind(block.node_kind).slurm.exclusive)
    return [sbatch_options(size, site.of_kind(size.node_kind).slurm) for size in sizes]


def place_of(handed: StartedDriver) -> Place:
    """Return the place that a driver was handed over to."""
    places: dict[str, Place] = {"slurm": DriverJob(), "systemd": UserUnit(), "tmux": Tmux()}
    return places[handed.place]


def name_in(place: Place, folder: SweepFolder) -> str:
    """Return a name for the driver of this sweep, of this folder alone where a place has one driver of a name."""
    if place.waits:
        return f"accelsweep-head-{folder.name}"
    return f"accelsweep-{folder.name}-{sha256_text(str(folder.root.resolve()))[:8]}"


def detached(folder: SweepFolder) -> tuple[StartedDriver, Whereabouts] | None:
    """Return the detached driver that waits or works, and what holds it; None where there is none.

    Raises AccelsweepError if Slurm does not answer.
    """
    handed = started_driver(folder)
    if handed is None or driver_exit_code(folder) is not None:
        return None
    if handed.place != "slurm" and handed.host != socket.gethostname():  # nobody can be asked but its hold
        lives = live_lock(folder.driver_file("claim")) is not None
        found = Whereabouts(f"{handed.place} on {handed.host}") if lives else None
    else:
        found = place_of(handed).state(handed.name)
    return (handed, found) if found is not None else None


class DetachedDriver:
    """The driver of a sweep that `--detach` started."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder

    def state(self) -> BackgroundState | None:
        """Return its state, None where none was started."""
        handed = started_driver(self._folder)
        if handed is None:
            return None
        try:
            found = detached(self._folder)
            state = found[1].words if found else None
        except AccelsweepError as error:
            state = f"not known: {error}"
        return BackgroundState(
            **handed.body(),
            state=state,
            code=driver_exit_code(self._folder),
            follow=f"accelsweep attach {self._folder.name}",
        )

    def conflict(self) -> str | None:
        """Return why this process must not drive the sweep: a job of Slurm drives it or will.

        A machine without Slurm knows of no job: the sweep came from elsewhere. Raises AccelsweepError if Slurm is
        silent.
        """
        job = self._job()
        if job is None:
            return None
        number, words = job
        return (
            f"the driver of sweep {self._folder.name!r} runs in the background: {words}. Follow it "
            f"(accelsweep attach {self._folder.name}), or end it: --cancel-old, or scancel {number}"
        )

    def end(self, say: Callable[[str], None], grace_seconds: float) -> None:
        """End its job as Ctrl-C would."""
        if job := self._job():
            DriverJob().end(job[0], say, grace_seconds=grace_seconds)

    def _job(self) -> tuple[str, str] | None:
        handed = started_driver(self._folder)
        ours = handed is not None and handed.name == os.environ.get("SLURM_JOB_ID")
        if handed is None or handed.place != "slurm" or ours or shutil.which("squeue") is None:
            return None
        try:
            found = detached(self._folder)
        except AccelsweepError as error:
            raise AccelsweepError(
                f"whether the driver of sweep {self._folder.name!r}, job {handed.name}, still waits or runs is not "
                f"known: {error}. Try again when Slurm answers"
            ) from None
        return (handed.name, found[1].words) if found else None

"""`accelsweep doctor`: checks devices, versions and whatever would disturb measurements on this machine.

`doctor site=NAME` also checks a cluster: whether its scheduler accepts each job size. `--job` submits a job. In a
folder with a training script, or with `--entry`, it also checks whether that script can be measured.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from accelsweep.config.site import Site
from accelsweep.devices.file_system import Capability, free_inodes, missing_capabilities
from accelsweep.devices.kinds import AUTO_ACCELERATORS, KINDS, inventory, monitored_devices
from accelsweep.devices.linux import allowed_cores
from accelsweep.driver.console import Tone, say, say_styled
from accelsweep.driver.job_queue import describe_keys
from accelsweep.driver.json_output import Answer
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INPUT, EXIT_OK, AccelsweepError, InputError
from accelsweep.files import LEASE_FOLDER_VARIABLE, exclusive_lock, lease_folder, tail_lines
from accelsweep.installation import shipped_root
from accelsweep.json_documents import Frozen
from accelsweep.measure.busy_now import busy_now
from accelsweep.measure.machine_state import device_state, host_state
from accelsweep.measure.run_doubts import FOREIGN, POWER_CAPS
from accelsweep.measure.run_doubts import governor as governor_doubt
from accelsweep.planning.entry_point import PROJECT_FILE, Project, measured_project
from accelsweep.planning.interpreter import usable_devices
from accelsweep.planning.project_config import ProjectConfigs
from accelsweep.planning.project_overrides import DEFAULT_MINUTES, ProjectGrid
from accelsweep.planning.resources import START_UP_SECONDS, trial_jobs
from accelsweep.records.file_lock import disk_time
from accelsweep.run_config import ENTRY_AXES, EntryKind
from accelsweep.schedulers.protocol import Resources, Scheduler, ask, missing_programs, python
from accelsweep.schedulers.select import scheduler_of
from accelsweep.schedulers.slurm import LITTLE_MEMORY_MB
from accelsweep.significant_digits import format_duration, gib

# The output of `accelsweep doctor`.


class CheckResult(Frozen):
    """One check."""

    ok: bool | None = Field(description="whether the check passed; null if its result does not prevent measuring")
    what: str = Field(description="what was checked")
    found: str = Field(description="what was found")
    remedy: str | None = Field(None, description="what to do, if anything")


class DoctorAnswer(Answer):
    """`accelsweep doctor --json`: whether this machine can measure."""

    kind: ClassVar[str] = "doctor"

    able: bool = Field(
        description="whether no check failed; if any did, the exit code is 1, or 2 if it concerns the training script"
    )
    checks: tuple[CheckResult, ...] = Field(description="the checks")


# The state of this machine: disk, locks, memory, load, clocks, other work, GPUs.

MIN_FREE_BYTES = 2_000_000_000
"""Enough disk space for a sweep's records and report, and enough memory for a run and its libraries, with a margin."""

MIN_FREE_INODES = 2_000
"""Enough for a sweep of a few dozen runs, with a margin."""

MAX_LOAD = 2 * FOREIGN
"""Maximum load average of an idle machine as a share of its cores: twice the load that disturbs a run."""

MAX_CLOCK_DIFFERENCE_SECONDS = 60.0

MAX_IDLE_DEVICE_BYTES = 2**30
"""GPU memory that drivers and displays may use without a warning."""


def machine_now(home: Path) -> Iterator[CheckResult]:
    """Check the machine and the folder `home`, where a temporary file is created to read the disk's clock."""
    state = host_state()
    yield from _folder(home)
    yield _locks()
    yield _memory(state)
    yield _load(state["load_average_1min"], len(allowed_cores()))
    yield _governor(state["governor"], state["cpu_mhz"])
    processes = busy_now()
    for process in processes:
        yield CheckResult(ok=None, what="other work", found=process, remedy="stop it before you measure")
    if not processes:
        yield CheckResult(ok=True, what="other work", found="none seen")
    for gpu in monitored_devices():
        yield from _gpu(device_state(gpu.identity, gpu.accelerator), gpu.model)


def _folder(home: Path) -> Iterator[CheckResult]:
    free = shutil.disk_usage(home).free
    remedy = None if free > MIN_FREE_BYTES else "free up space, or work on another disk"
    yield CheckResult(ok=remedy is None, what="free disk", found=f"{free / 1e9:.1f} GB in {home}", remedy=remedy)
    if (files := free_inodes(home)) is not None:
        remedy = None if files > MIN_FREE_INODES else "remove files there, or work on another disk"
        yield CheckResult(ok=remedy is None, what="free inodes", found=f"{files} files in {home}", remedy=remedy)
    from_disk = disk_time(home)
    if from_disk is None:
        remedy = "make it writable, or work in another folder"
        yield CheckResult(ok=False, what="folder", found=f"{home} is not writable", remedy=remedy)
        return
    for capability in missing_capabilities(home):
        found, remedy = _WITHOUT[capability]
        yield CheckResult(ok=None, what=f"{capability} in {home}", found=f"none: {found}", remedy=remedy)
    difference = from_disk - time.time()
    if abs(difference) < MAX_CLOCK_DIFFERENCE_SECONDS:
        yield CheckResult(ok=True, what="clock", found="this machine and its disk agree")
        return
    direction = "ahead of" if difference > 0 else "behind"
    found = f"the disk's clock is {format_duration(abs(difference))} {direction} this machine's clock"
    yield CheckResult(ok=None, what="clock", found=found, remedy="synchronise both with a time server (NTP)")


_WITHOUT: dict[Capability, tuple[str, str | None]] = {
    Capability.hard_links: (
        "files are renamed into place instead, and block logs start over with each command",
        None,
    ),
    Capability.symbolic_links: (
        "a repository with symbolic links cannot be copied to compare its versions",
        "put such a repository on another disk",
    ),
    Capability.locks: (
        "SQLite cannot write mlflow.db there; runs are still measured",
        "use another store, such as --tracking-uri sqlite:////tmp/mlflow.db, or a server",
    ),
    Capability.shared_maps: (
        "a run's steps are not shown, and only limits.run_seconds ends a run that hangs",
        "lower limits.run_seconds if runs are short",
    ),
    Capability.modes: ("the disk's mount options determine the permissions of all files", None),
}


def _locks() -> CheckResult:
    """Check that runs can take turns on this machine, using locks in the node-local folder."""
    try:
        with exclusive_lock("doctor", Path("/")):
            return CheckResult(ok=True, what="runs take turns", found=f"with locks in {lease_folder()}")
    except (AccelsweepError, OSError) as error:
        remedy = f"set {LEASE_FOLDER_VARIABLE} to a folder on this machine's local disk that only you can write to"
        return CheckResult(ok=False, what="runs take turns", found=str(error), remedy=remedy)


def _memory(state: dict[str, Any]) -> CheckResult:
    free, swapped = state["memory_available_bytes"], state["swap_used_bytes"]
    swap = f", {gib(swapped, 1)} swapped out" if swapped else ""
    remedy = None if free > MIN_FREE_BYTES else "stop processes that use a lot of memory, or lower batch_size"
    return CheckResult(ok=None if remedy else True, what="free memory", found=f"{gib(free, 1)}{swap}", remedy=remedy)


def _load(load: float, cores: int) -> CheckResult:
    found = f"{load:.1f} over the last minute, on {cores} cores"
    limit = max(1.0, MAX_LOAD * cores)
    if load < limit:
        return CheckResult(ok=True, what="load", found=found)
    return CheckResult(ok=None, what="load", found=found, remedy=f"wait until it is below {limit:g} before you measure")


def _governor(name: str | None, mhz: float | None) -> CheckResult:
    now = f", {mhz:.0f} MHz now" if mhz else ""
    if name is None:
        return CheckResult(ok=None, what="processor's clock", found=f"its governor is unknown{now}")
    doubt = governor_doubt(name)
    found, remedy = f"governor {name}{now}", doubt.remedy if doubt else None
    return CheckResult(ok=None if doubt else True, what="processor's clock", found=found, remedy=remedy)


def _gpu(state: dict[str, Any], model: str) -> Iterator[CheckResult]:
    what = f"state of {state.get('name') or model}"
    if reason := state.get("reason"):
        yield CheckResult(ok=None, what=what, found=f"unknown: {reason}")
        return
    clock = f"{state['sm_mhz']} of {state['sm_mhz_max']} MHz, {state['celsius']} degrees Celsius"
    throttles = [reason for reason in state["throttles"] or () if reason not in POWER_CAPS]
    if throttles:
        found, remedy = f"{clock}, throttled: {', '.join(throttles)}", "improve cooling, or check the board for a fault"
        yield CheckResult(ok=None, what=what, found=found, remedy=remedy)
    else:
        yield CheckResult(ok=True, what=what, found=clock)
    used, total = state["memory_used_bytes"], state["memory_total_bytes"]
    if used is not None and used > MAX_IDLE_DEVICE_BYTES:
        found = f"{gib(used, 1)} of {gib(total)} of memory is in use"
        yield CheckResult(ok=None, what=what, found=found, remedy="stop the processes that use it (see nvidia-smi)")


# A site's cluster: whether the scheduler would accept its jobs, and what a short job detects on a node.

_POLL_SECONDS = 2.0

_MAX_FILE_DELAY_SECONDS = 60.0
"""A file written by a node to a shared disk may take this long to become visible here, because its absence is
cached."""

_MAX_MINUTES = math.ceil(START_UP_SECONDS / 60)
"""The start-up time in minutes that a plan allows for each block: modules, scratch, and loading torch from a slow
disk."""


def examine_site(site: Site) -> Iterator[CheckResult]:
    """Check that the site's scheduler is available and would accept each job size. Nothing is submitted."""
    what, scheduler = f"site {site.name}", scheduler_of(site)
    if scheduler is None:
        yield CheckResult(ok=True, what=what, found="runs are measured on this machine")
        return
    if missing := missing_programs(scheduler):
        remedy = "run this on a login node of the cluster, or choose site=local"
        yield CheckResult(ok=False, what=what, found=f"no {' and no '.join(missing)} here", remedy=remedy)
        return
    try:
        yield CheckResult(ok=True, what=what, found=f"submits to {scheduler.version()}")
    except AccelsweepError as error:
        yield CheckResult(
            ok=False, what=what, found=" ".join(str(error).split()), remedy="ask the cluster's administrators"
        )
        return
    memory_notes: set[str] = set()
    for needs in trial_jobs(site):
        if needs.nodes > 1 and not scheduler.starts_ranks:
            continue
        yield _acceptance(needs, site, scheduler)
        if (note := _too_little_memory(needs, site, scheduler)) is not None and note.found not in memory_notes:
            memory_notes.add(note.found)
            yield note


def _acceptance(needs: Resources, site: Site, scheduler: Scheduler) -> CheckResult:
    """Check whether the scheduler would accept a job of this size."""
    what = _job_name(needs, scheduler)
    try:
        offer = scheduler.offer(needs)
    except AccelsweepError as error:
        found = " ".join(str(error).split())
        return CheckResult(
            ok=False, what=what, found=found, remedy="try again later, or ask the cluster's administrators"
        )
    if offer.temporary:
        remedy = (
            "try again when one of your jobs has ended" if scheduler.queue_limit(offer.message) else "try again later"
        )
        return CheckResult(ok=None, what=what, found=offer.message, remedy=remedy)
    if offer.accepted:
        return CheckResult(ok=True, what=what, found=offer.message)
    remedy = f"change {describe_keys(site, needs, offer.keys)} until this is accepted: {offer.command}"
    return CheckResult(ok=False, what=what, found=offer.message, remedy=remedy)


def _too_little_memory(needs: Resources, site: Site, scheduler: Scheduler) -> CheckResult | None:
    """Return a note if the site does not set the memory and the scheduler's default is too small for this job."""
    if needs.mem_mb is not None:
        return None
    try:
        memory = scheduler.default_memory_mb(needs)
    except AccelsweepError:
        return None  # reported by `_acceptance`
    if memory is None or memory >= LITTLE_MEMORY_MB:
        return None
    kind = f" of {needs.node_kind}" if needs.node_kind else ""
    found = f"the default is {memory} MB per node, but a block needs more than {LITTLE_MEMORY_MB} MB"
    remedy = f"set mem_mb{kind}, e.g. {site.jobs_key}.mem_mb=4000"
    return CheckResult(ok=None, what=f"memory of a job{kind}", found=found, remedy=remedy)


def _job_name(needs: Resources, scheduler: Scheduler) -> str:
    kind = f"{needs.node_kind}: " if needs.node_kind else ""
    return f"job of {kind}{scheduler.in_words(needs)}"


def try_jobs(site: Site, home: Path, wait_minutes: float) -> Iterator[CheckResult]:
    """Submit the smallest job to each node kind, and yield the results of the checks that it runs there.

    A job that waits too long is cancelled. Yields nothing if the site has no scheduler. Raises AccelsweepError if the
    scheduler does not answer.
    """
    if (scheduler := scheduler_of(site)) is None:
        return
    tried: set[tuple[str | None, bool]] = set()
    for needs in trial_jobs(site):
        kind = (needs.node_kind, needs.gpus > 0)
        if needs.nodes == 1 and kind not in tried:
            tried.add(kind)
            yield from _try_job(needs, site, scheduler, home, wait_minutes)


def _try_job(
    needs: Resources, site: Site, scheduler: Scheduler, home: Path, wait_minutes: float
) -> Iterator[CheckResult]:
    options = site.of_kind(needs.node_kind).jobs
    needs = needs.model_copy(update={"minutes": min(_MAX_MINUTES, options.max_minutes or _MAX_MINUTES)})
    log = home / f"accelsweep-doctor-{time.time_ns()}.log"
    what = f"a short {_job_name(needs, scheduler)}"
    script = f"{scheduler.before_block(needs)}{python(options, sys.executable)} -P -m accelsweep.measure.node_check"
    script += " --gpu" if needs.gpus and not options.fake_gpus else ""
    try:
        # in bash, which Snakemake also uses to start blocks, because `module` is a bash function
        job = scheduler.submit(needs, f"bash -c {shlex.quote(script)}", log)
        yield from _job_results(what, job, scheduler, site, log, wait_minutes)
    except AccelsweepError as error:
        yield CheckResult(ok=False, what=what, found=str(error), remedy="change the site file and try again")
    finally:
        log.unlink(missing_ok=True)


def _job_results(
    what: str, job: str, scheduler: Scheduler, site: Site, log: Path, wait_minutes: float
) -> Iterator[CheckResult]:
    """Wait for the job to end, then yield the checks from the last line of its log, or the reason for their absence."""
    deadline = time.monotonic() + wait_minutes * 60
    try:
        while (state := scheduler.state(job)) and time.monotonic() <= deadline:
            time.sleep(_POLL_SECONDS)
    finally:
        with contextlib.suppress(AccelsweepError):  # the job may have ended
            ask(*scheduler.cancel([job]))
    if state:
        remedy = "try again when the cluster is less busy, or wait longer with --job MINUTES"
        yield CheckResult(ok=None, what=what, found=f"still {state} after {wait_minutes:g} minutes", remedy=remedy)
        return
    deadline = time.monotonic() + _MAX_FILE_DELAY_SECONDS
    while not (lines := [line for line in tail_lines(log) if line.strip()]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    if not log.exists():
        remedy = "work in a folder that the login node and the compute nodes share under the same path"
        yield CheckResult(ok=False, what=what, found=f"job {job} wrote nothing to {log.parent}", remedy=remedy)
        return
    last_line = lines[-1] if lines else "it wrote nothing"
    try:
        checks = [CheckResult(**check) for check in json.loads(last_line)["checks"]]
    except (ValueError, TypeError, KeyError):
        remedy = f"check {site.jobs_key}.modules, scratch and container: they are set up before Python starts"
        if any("time limit" in line.lower() for line in lines):
            remedy = (
                f"{_MAX_MINUTES} minutes were not enough to start Python and torch, and a block has no more than that: "
                "install them where the node can read them faster"
            )
        yield CheckResult(ok=False, what=what, found=f"job {job} ended early: {last_line}", remedy=remedy)
        return
    yield CheckResult(ok=True, what=what, found=f"job {job} ran")
    yield from checks


# The user's own training script: its environment, and where the axes go.

_KINDS: dict[EntryKind, str] = {
    "hydra": "uses Hydra",
    "lightning_cli": "uses LightningCLI",
    "script": "takes options",
    "command": "no Python script, so it is measured as a whole process, with measure.scope=process",
}


def examine_project(home: Path, entry: str | None) -> Iterator[CheckResult]:
    """Check the training script in `home`; yield nothing if there is none and `entry` names none."""
    ok = None  # several scripts in a folder are not a fault of the machine
    try:
        project = measured_project(home, entry, ())
        if project is not None:
            ok = False
            yield from _project(project)
    except AccelsweepError as error:
        ok = False if entry is not None or (home / PROJECT_FILE).is_file() else ok
        yield CheckResult(ok=ok, what="training script", found=str(error), remedy="see the message")


def _project(project: Project) -> Iterator[CheckResult]:
    how = (
        "found in the sources" if project.found else f"named {'by --entry' if project.typed else 'in accelsweep.yaml'}"
    )
    yield CheckResult(ok=None, what="training script", found=f"{project.command}, {how}; {_KINDS[project.entry.kind]}")
    if project.entry.kind == "command":
        return
    where = "" if project.own_environment else ", accelsweep's own"
    yield CheckResult(ok=None, what="its interpreter", found=f"{project.python}{where}")
    installed = project.measured.software or {"python": sys.version.split()[0]}
    packages = filter(None, ("torch", project.distribution))
    versions = {name: installed.get(name) or importlib.metadata.version(name) for name in packages}
    devices = usable_devices(project.python, project.package)
    found = ", ".join(f"{name} {version}" for name, version in {"Python": installed["python"], **versions}.items())
    yield CheckResult(ok=True, what="its versions", found=found)
    yield from _project_devices(devices)
    with ProjectConfigs.of(project, {}) as configs:
        grid = ProjectGrid(project, configs, DEFAULT_MINUTES)
        grid.auto = next((accelerator for accelerator in AUTO_ACCELERATORS if accelerator in devices), "cpu")
        yield from (_axis(grid, axis) for axis in ENTRY_AXES)
        yield _quality(grid)


def _project_devices(devices: Mapping[str, str]) -> Iterator[CheckResult]:
    for accelerator, device in devices.items():
        yield CheckResult(ok=None, what="its devices", found=f"{accelerator}: {device}")
    for accelerator in sorted({name for name, kind in KINDS.items() if kind.gpus()} - devices.keys()):
        found = f"its torch cannot use this machine's {KINDS[accelerator].units}"
        remedy = "install a build of torch there that matches the driver"
        yield CheckResult(ok=None, what="its devices", found=found, remedy=remedy)


def _axis(grid: ProjectGrid, axis: str) -> CheckResult:
    what, target, value = f"axis {axis}", grid.targets[axis], grid.value_of(axis, grid.base.config)
    if isinstance(target, str):
        return CheckResult(ok=False, what=what, found=target, remedy="see the message")
    if target.key is None:
        return CheckResult(ok=True, what=what, found=target.description)
    key = target.key if grid.project.entry.kind == "hydra" else f"--{target.key}"
    if value is None and axis == "batch_size":
        return CheckResult(ok=None, what=what, found=f"{key}, without a known default", remedy=f"type {axis}=NUMBER")
    return CheckResult(ok=True, what=what, found=key if value is None else f"{key}, now {value}")


def _quality(grid: ProjectGrid) -> CheckResult:
    stated = grid.project.file.quality
    if grid.project.package is None and stated is None:
        remedy = "set quality=METRIC, or quality='accuracy: ([0-9.]+)' for what the script prints at its end"
        return CheckResult(ok=None, what="quality", found="not measured", remedy=remedy)
    if grid.project.package is None and stated is not None:
        return CheckResult(ok=True, what="quality", found=f"{stated.metric}, at the script's own end")
    if grid.quality is None:
        remedy = "set quality=METRIC to one that the validation logs"
        return CheckResult(ok=None, what="quality", found="no metric is named in the config", remedy=remedy)
    found = f"{grid.quality.metric} ({grid.quality.better} is better)"
    return CheckResult(ok=True, what="quality", found=found)


# The command.


_PACKAGES = ("torch", "lightning", "hydra-core", "snakemake", "mlflow", "pandas")

_MARKS = {True: ("ok  ", Tone.good), False: ("FAIL", Tone.bad), None: ("    ", Tone.plain)}


def examine(
    home: Path,
    overrides: Sequence[str] = (),
    *,
    entry: str | None = None,
    job_minutes: float | None = None,
    as_json: bool = False,
) -> int:
    """Print every check; return 0 if none failed, 2 if a check of the training script failed, else 1.

    `overrides` may specify a site to check as well. `entry` is the command that runs the user's own training script; if
    it is None, a script is looked for. If `job_minutes` is given, a short job is submitted to each of the site's node
    kinds, with a timeout of that many minutes. Raises InputError for an invalid site, AccelsweepError if its scheduler
    does not answer.
    """
    site = _site(home, overrides, job_minutes)
    checks: list[CheckResult] = []

    def failed(each: Iterator[CheckResult]) -> list[str]:
        """Show the checks; return the names of those that failed."""
        names = []
        for check in each:
            checks.append(check)
            if check.ok is False:
                names.append(check.what)
            if not as_json:  # print each check immediately: some take a moment
                mark, tone = ("note", Tone.doubtful) if check.ok is None and check.remedy else _MARKS[check.ok]
                say_styled(
                    mark, tone, f" {check.what}: {check.found}" + (f" -> {check.remedy}" if check.remedy else "")
                )
        return names

    of_machine, of_script = failed(_all(home, site, job_minutes)), failed(examine_project(home, entry))
    names = [*of_machine, *of_script]
    if as_json:
        say(DoctorAnswer(able=not names, checks=tuple(checks)).text())
    elif names:
        say(f"{len(names)} of {len(checks)} checks failed; the first was: {names[0]}")
    if of_script:
        return EXIT_INPUT
    return EXIT_INCOMPLETE if of_machine else EXIT_OK


def _site(home: Path, overrides: Sequence[str], job_minutes: float | None) -> Site | None:
    if other := [override for override in overrides if not override.lstrip("+~").startswith(("site=", "site."))]:
        raise InputError(f"{other[0]}: doctor accepts only overrides of the site: site=NAME, and keys under `site.`")
    if job_minutes is not None and not 0 < job_minutes < math.inf:
        raise InputError(f"--job {job_minutes:g}: the number of minutes to wait for a job must be more than 0")
    if not overrides:
        if job_minutes is not None:
            raise InputError("--job submits to a site's cluster: name the site with site=NAME")
        return None
    from accelsweep.config.hydra import Composer
    from accelsweep.planning.checked_grid import site_of

    return site_of(Composer.of(home, overrides), overrides)


def _all(home: Path, site: Site | None, job_minutes: float | None) -> Iterator[CheckResult]:
    yield from _checks(home)
    if site is None:
        return
    is_usable = True
    for check in examine_site(site):
        is_usable = is_usable and check.ok is not False
        yield check
    if job_minutes is not None and is_usable:
        yield from try_jobs(site, home, job_minutes)


def _checks(home: Path) -> Iterator[CheckResult]:
    is_recent = sys.version_info >= (3, 11)
    remedy = None if is_recent else "use Python 3.11 or later"
    yield CheckResult(ok=is_recent, what="Python", found=sys.version.split()[0], remedy=remedy)
    for package in _PACKAGES:
        try:
            yield CheckResult(ok=True, what=package, found=importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            remedy = "run make setup, or reinstall accelsweep with pip"
            yield CheckResult(ok=False, what=package, found="missing", remedy=remedy)
    try:
        yield CheckResult(ok=True, what="conf/ and Snakefile", found=str(shipped_root()))
    except FileNotFoundError as error:
        yield CheckResult(ok=False, what="conf/ and Snakefile", found=str(error), remedy="reinstall accelsweep")
    yield from _devices()
    yield from machine_now(home)
    for program, use in (("git", "recording commits"), ("sbatch", "submitting to Slurm")):
        found = shutil.which(program) or f"not installed (only needed for {use})"
        yield CheckResult(ok=None, what=program, found=found)


def _devices() -> Iterator[CheckResult]:
    try:
        devices = inventory()
    except AccelsweepError as error:
        yield CheckResult(ok=False, what="devices", found=str(error), remedy="see the message")
        return
    for device in devices:
        memory = f", {gib(device.memory_bytes)}" if device.memory_bytes else ""
        found = f"{device.count} x {device.accelerator}: {device.model}{memory}"
        yield CheckResult(ok=None, what="device", found=found)

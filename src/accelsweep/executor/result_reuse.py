"""Determines which results are reusable: those with an intact, final record measured under the current conditions.

Conditions are compared by fingerprint: hardware, software, digests of the user's sources, targets of symbolic links. On
a cluster, the driver cannot inspect the nodes' hardware, but it reads the same sources and links. It reopens a block
whose sources or links have changed; the block's executor on the node then compares everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.config.setting import abbreviate_home, expand_home
from accelsweep.config.site import Site
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.code_versions import CodeVersions
from accelsweep.files import set_aside, sha256_file
from accelsweep.measure.machine_state import PACKAGES, fingerprint
from accelsweep.plain_json import canonical_json
from accelsweep.planning.source_digests import (
    ImportPath,
    entry_digests,
    is_user_package,
    measured_targets,
    source_digests,
)
from accelsweep.records.cleanup import remove_stale_files
from accelsweep.records.early_decisions import EarlyDecision, decided_runs
from accelsweep.records.file_lock import driver_started_at, live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import not_run_reason
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record, steps_damage
from accelsweep.results import Fingerprint, Outcome
from accelsweep.run_config import SettingConfig


class CurrentConditions:
    """The current conditions of a measurement. Fingerprints are cached until `read_fingerprint` refreshes them.

    The user's packages are looked up in the working folder first, or, if a config specifies a version, in that
    version's tree.
    """

    def __init__(self, folder: SweepFolder, site: Site | None = None, *, since: str | None = None) -> None:
        """Pass the `site` to compare only what the driver can inspect there.

        `since` is the start of the current command (UTC, ISO 8601), which does not retry its own failed runs.
        """
        self._home = folder.home
        self._since = since
        self._cluster = site if site is not None and site.scheduler != "local" else None
        self.versions = CodeVersions(folder)
        self._cache: dict[str, Fingerprint] = {}

    def fingerprint(self, config: SettingConfig) -> Fingerprint:
        """Return a setting's current fingerprint, covering its accelerator's hardware and its packages' sources."""
        cached = self._cache.get(_cache_key(config))
        if cached is None:
            return self.read_fingerprint(config)
        return replace(cached, links=self._links(config))

    def read_fingerprint(self, config: SettingConfig) -> Fingerprint:
        """Read the fingerprint again, because the user may edit a source while a block runs."""
        version = self.versions.get(config)
        try:
            sources = self._sources(config)
        except InputError:
            sources = {}  # a package was removed after planning: the run's own error is clearer
        installed = version.tree.software if version is not None else {}
        packages: Iterable[str] = PACKAGES
        if config.entry is not None and self.versions.project is not None:
            installed, packages = installed or self.versions.project.software, _PROJECT_PACKAGES
        software = {package: installed[package] for package in packages if package in installed}
        known = {} if config.entry is not None and config.entry.kind == "command" else software or None
        current = self._cache[_cache_key(config)] = fingerprint(sources, config.accelerator, known)
        return replace(current, links=self._links(config))

    def _sources(self, config: SettingConfig) -> dict[str, str]:
        if config.entry is None:
            return source_digests(measured_targets(config), self._import_path(config))
        if not config.whole_process:
            return {}  # a script's sources are the files that it has read, which its record lists
        version = self.versions.get(config)
        return entry_digests(self._home if version is None else version.home, config.entry)

    def why_rerun(self, record: Record) -> str | None:
        """Return why the run of `record` has to be measured again, or None if the record is reusable."""
        if not is_final(record, self._since):
            return f"it ended as {record.outcome}, which is not final"
        if (path := self._changed_file(record)) is not None:
            return f"{path} has changed"
        return difference(*self._compared(record)) or None

    def why_outdated(self, record: Record) -> str | None:
        """Return what has changed since a settled run was measured, in a few words; None if its record is reusable."""
        if not record.outcome.settled:
            return None
        if (path := self._changed_file(record)) is not None:
            return f"{path} changed"
        change = next(iter(_changes(*self._compared(record))), None)
        return None if change is None else change.in_short

    def _compared(self, record: Record) -> tuple[Fingerprint, Fingerprint]:
        """Return the fingerprints of the record and of now, as far as they can be compared."""
        then, now = record.fingerprint, self.fingerprint(record.config)
        if record.config.version is not None and self.versions.get(record.config) is None:
            now = replace(now, sources=then.sources)  # the tree was deleted; its commit cannot change
        if self._cluster is not None:
            then, now = (self._visible_to_driver(node, record.config, self._cluster) for node in (then, now))
        return then, now

    def _changed_file(self, record: Record) -> str | None:
        version = self.versions.get(record.config)
        if record.config.version is not None and (version is None or version.tree.checkout):
            return None  # the files of a version's tree cannot change
        changed = (path for path, identity in record.files.items() if file_identity(self._home / path) != identity)
        return next(changed, None)

    def _import_path(self, config: SettingConfig) -> ImportPath:
        version = self.versions.get(config)
        return ImportPath.of_home(self._home) if version is None else version.path

    def _visible_to_driver(self, node: Fingerprint, config: SettingConfig, site: Site) -> Fingerprint:
        """Return the part of a node's fingerprint that the cluster's driver can compare.

        A container has its own packages, and an absolute path may resolve differently on a node.
        """
        sources, software = node.sources, node.software
        if any(of_kind.jobs.container for of_kind in (site, *(site.of_kind(kind.name) for kind in site.kinds))):
            path = self._import_path(config)
            sources, software = {name: digest for name, digest in sources.items() if is_user_package(path, name)}, {}
        relative = {key for key, text in _path_values(config.raw) if not text.startswith("/")}
        links = {key: target for key, target in node.links.items() if key in relative}
        return Fingerprint(hardware={}, software=software, builds={}, sources=sources, links=links)

    @cached_property
    def _links_in_home(self) -> frozenset[str]:
        with os.scandir(self._home) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())

    def _links(self, config: SettingConfig) -> dict[str, str]:
        """Return the real path of each config value whose path contains a symbolic link, keyed by dotted key."""
        links = {}
        for key, text in _path_values(config.raw):
            if "/" in text or text in self._links_in_home:
                path = self._home / expand_home(text, self._home)
                real = os.path.realpath(path)
                if real != os.path.normpath(path):
                    links[key] = abbreviate_home(real, self._home)
        return links


_PROJECT_PACKAGES = ("python", *PACKAGES, "pytorch-lightning")
"""The packages of the script's environment that a fingerprint contains, if they are installed."""

_SOURCE_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".txt", ".env", ".sh", ""})

_SOURCE_BYTES = 1_000_000
"""Larger files are data, whatever their suffix."""


def file_identity(path: Path) -> str:
    """Return what identifies a file's contents: a digest of a source or config file, size and time of a data file."""
    try:
        status = path.stat()
        if path.suffix in _SOURCE_SUFFIXES and status.st_size <= _SOURCE_BYTES:
            return sha256_file(path)
    except OSError:
        return "absent"
    return f"{status.st_size} bytes, {status.st_mtime_ns}"


def is_final(record: Record, since: str | None) -> bool:
    """Return whether the command that began at `since` skips the run because it is settled or has failed since then.

    One command may start several Snakemake processes, and several executors for a block.
    """
    return record.outcome.settled or (since is not None and record.started_at >= since)


def reusable_runs(records: Iterable[Record], folder: SweepFolder, site: Site) -> set[str]:
    """Return the names of the runs whose records are reusable, as far as this machine can tell."""
    current = CurrentConditions(folder, site, since=driver_started_at(folder))
    return {record.run for record in records if current.why_rerun(record) is None}


def _cache_key(config: SettingConfig) -> str:
    entry = None if config.entry is None else config.entry.command
    return canonical_json([config.accelerator, sorted(measured_targets(config)), config.version_id, entry])


def _path_values(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of each value under `value` that may name a file."""
    if isinstance(value, str):
        if value and not key.endswith("_target_") and "\0" not in value and "://" not in value:
            yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _path_values(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _path_values(item, f"{key}.{number}")


class _Change(NamedTuple):
    """An entry in which two fingerprints differ; a value is None if the entry is absent."""

    part: str
    key: str
    then: str | None
    now: str | None

    @property
    def in_short(self) -> str:
        """What changed, in a few words; digests are omitted."""
        if self.part == "sources":
            return f"the code changed ({self.key})"
        if self.part == "links":
            return f"the link in {self.key} changed"
        return f"the {self.part} changed ({self.key} {_shortened(self.then)}, now {_shortened(self.now)})"


def _changes(then: Fingerprint, now: Fingerprint) -> Iterator[_Change]:
    for part in ("hardware", "software", "sources", "links"):
        old, new = getattr(then, part), getattr(now, part)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield _Change(part, key, old.get(key), new.get(key))


def difference(then: Fingerprint, now: Fingerprint) -> str:
    """Describe the entries in which two fingerprints differ, with both values."""
    return "; ".join(
        f"{part} {key}: {_shortened(old)} then, {_shortened(new)} now" for part, key, old, new in _changes(then, now)
    )


def _shortened(value: str | None) -> str:
    return "absent" if value is None else value if len(value) < 40 else f"{value[:12]}..."


@dataclass(frozen=True)
class RunState:
    """The state of a wanted run according to its files.

    Without a usable record, `outcome` is `not_run` or, if the run was left out, `decided`.
    """

    run: str
    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True)
class Audit:
    """The state of every wanted run in plan order, the blocks whose done file was removed, and the damaged files."""

    runs: tuple[RunState, ...]
    reopened: tuple[str, ...]
    damaged: tuple[DamagedFile, ...]

    @property
    def unsettled(self) -> tuple[RunState, ...]:
        """The runs that the next command attempts."""
        return tuple(run for run in self.runs if not run.outcome.settled)


def audit(folder: SweepFolder, *, check_conditions: bool = False) -> Audit:
    """Check every wanted run of the sweep, reopen blocks whose done file is outdated, and set damaged files aside.

    If `check_conditions` is set, a block is also reopened if its records were measured under different conditions, as
    far as this machine can tell. Damaged files are reported but left in place if a live executor is working on their
    block. Raises DamagedFile for a damaged manifest.
    """
    try:
        manifest = Manifest.read(folder.manifest)
    except DamagedFile as error:
        raise needs_planning(error) from None
    remove_stale_files(folder)
    since = driver_started_at(folder)
    current = CurrentConditions(folder, manifest.site, since=since) if check_conditions else None
    decided = decided_runs(folder, manifest)
    runs: list[RunState] = []
    reopened: list[str] = []
    damaged: list[DamagedFile] = []
    for planned in manifest.blocks:
        block = _BlockAudit(folder, planned.name, damaged, decided, since, current)
        runs += map(block.state, planned.runs)
        if block.done_is_outdated:
            folder.done(planned.name).unlink(missing_ok=True)
            reopened.append(planned.name)
    return Audit(tuple(runs), tuple(reopened), tuple(damaged))


def needs_planning(error: DamagedFile) -> DamagedFile:
    """Return `error` with its remedy: planning again replaces a damaged plan or block."""
    return DamagedFile(error.path, f"{error.reason}; running the same `accelsweep run` rewrites it")


class _BlockAudit:
    """Reads a block's records one after another, because those of a large sweep take gigabytes together.

    `done_is_outdated` tells whether a done file exists that cannot cover the runs whose state has been asked for.
    """

    def __init__(
        self,
        folder: SweepFolder,
        name: str,
        damaged: list[DamagedFile],
        decided: Mapping[str, EarlyDecision],
        since: str | None,
        current: CurrentConditions | None,
    ) -> None:
        self._decided, self._since, self._current = decided, since, current
        self._folder = folder
        self._name = name
        self._damaged = damaged
        self._busy = live_lock(folder.lock(name)) is not None
        self.done_is_outdated = False
        try:
            Block.read(folder.block(name))
        except FileNotFoundError:
            damaged.append(needs_planning(DamagedFile(folder.block(name), "it is missing")))
        except DamagedFile as error:
            self._set_aside(needs_planning(error))
        self._done: Done | None = None
        try:
            self._done = Done.read(folder.done(name))
        except FileNotFoundError:
            pass
        except DamagedFile as error:
            self._set_aside(error)
            self.done_is_outdated = True

    def state(self, run: str) -> RunState:
        """Return the state of a wanted run."""
        state, record = self._read(run)
        if self._done is not None and not self.done_is_outdated and state.outcome is not Outcome.decided:
            self.done_is_outdated = record is None or self._contradicts(self._done, record)
        return state

    def _contradicts(self, done: Done, record: Record) -> bool:
        if not is_final(record, self._since):
            return True
        if done.records.get(record.run) != sha256_file(self._folder.record(record.run)):
            return True
        return self._current is not None and self._current.why_rerun(record) is not None

    def _read(self, run: str) -> tuple[RunState, Record | None]:
        try:
            record = RunFolder(self._folder.run(run), run).record()
        except DamagedFile as error:
            self._set_aside(error)
            return RunState(run, Outcome.not_run, f"its record is damaged: {error.reason}"), None
        if record is None and (decision := self._decided.get(run)) is not None:
            return RunState(run, Outcome.decided, decision.reason), None
        if record is None:
            return RunState(run, Outcome.not_run, not_run_reason(self._folder, self._name)), None
        damage = steps_damage(record, self._folder.steps(run))
        if damage is not None:
            self._set_aside(damage)
            return RunState(run, Outcome.not_run, f"its steps.parquet is damaged: {damage.reason}"), None
        return RunState(run, record.outcome, record.reason), record

    def _set_aside(self, error: DamagedFile) -> None:
        if self._busy or not error.path.exists():
            self._damaged.append(error)
            return
        aside = set_aside(error.path)
        self._damaged.append(DamagedFile(error.path, f"{error.reason}; set aside as {aside.name}"))

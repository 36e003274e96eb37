"""Finished runs that still stand: their record is whole, is an answer, and was made under the present conditions.

The head of a sweep on a cluster cannot tell the hardware of the nodes, but it reads the same sources and links as they
do. What it finds changed is handed to the nodes again, and they compare everything.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import frozen_paths, placed_paths
from accelsweep.config.site import Site
from accelsweep.config.versions import TREES_VARIABLE, Tree
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.json_documents import canonical_json, set_aside, sha256_file
from accelsweep.measure.machine_state import fingerprint
from accelsweep.planning.source_digests import ImportPath, brings, path_of_version, source_digests, targets
from accelsweep.records.cleanup import sweep_up
from accelsweep.records.file_lock import command_began, living_hold
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Fingerprint, Outcome, Record, steps_damage
from accelsweep.records.stop_reasons import why_not_run

# The versions of a sweep as its supervisors find them: the tree of each, and how a run is made to import from it.


@dataclass(frozen=True)
class VersionAtHand:
    """A version whose tree is there. `folder` is the tree, or the working directory of a version without one."""

    known: Tree
    folder: Path
    path: ImportPath

    @property
    def needs_own_interpreter(self) -> bool:
        """Whether runs cannot be forked from this process: another Python, or a package that is loaded here already."""
        loaded = any(package in sys.modules for package in self.known.packages)
        return loaded or self.known.version.python is not None

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables by which a run of this version imports from its tree, forked or not (`worker.rank_setup`)."""
        if self.path.tree is None:
            return {}
        told = {
            "name": self.known.version.in_words,
            "tree": str(self.path.tree),
            "checkout": self.known.checkout,
            "folders": [str(folder) for folder in self.path.folders],
            "packages": list(self.known.packages),
        }
        inherited = os.environ.get("PYTHONPATH")
        paths = [*told["folders"], *([inherited] if inherited else [])]
        return {TREES_VARIABLE: canonical_json(told), "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class Versions:
    """The versions in a sweep's folder, each looked up once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._known: dict[str, VersionAtHand] = {}

    def of(self, config: CellConfig) -> VersionAtHand | None:
        """Return the version that a config holds; None for a config without one, or where its tree is not there."""
        name = config.version_id
        if name is None:
            return None
        if name not in self._known and (found := _at_hand(self._folder, name)) is not None:
            self._known[name] = found
        return self._known.get(name)

    def needed(self, config: CellConfig) -> VersionAtHand | None:
        """Return the same. Raises AccelsweepError where a version's tree is not there, with the remedy."""
        found, name = self.of(config), config.version_id
        if found is None and name is not None:
            raise AccelsweepError(
                f"the version's tree {self._folder.version(name)} is not there; the same `accelsweep ab` makes it again"
            )
        return found


def _at_hand(folder: SweepFolder, name: str) -> VersionAtHand | None:
    try:
        known = Tree.read(folder.version_file(name))
    except (FileNotFoundError, DamagedFile):
        return None
    if not known.checkout:
        return VersionAtHand(known, folder.home, ImportPath.of_home(folder.home))
    tree = folder.version(name)
    return VersionAtHand(known, tree, path_of_version(folder, known)) if tree.is_dir() else None


class Present:
    """The present conditions of a measurement.

    Packages of the user's are looked for in `home` first, or in the tree of the version that a config holds.
    """

    def __init__(
        self, home: Path, sweep: str | None = None, site: Site | None = None, *, since: str | None = None
    ) -> None:
        """`sweep` names the sweep whose versions are looked for. A `site` on a cluster is looked at from its head.

        `since` is when the present command began (UTC, ISO 8601). What failed in it is not tried again in it.
        """
        self._home = home
        self._since = since
        self._site = site if site is not None and site.scheduler != "local" else None
        self._versions = None if sweep is None else Versions(SweepFolder(home, sweep))
        self._known: dict[str, Fingerprint] = {}

    def fingerprint(self, config: CellConfig) -> Fingerprint:
        """Return the present fingerprint for a cell's config: its accelerator's hardware, its own packages' sources."""
        found = self._known.get(_key(config)) or self._read(config)
        return found.model_copy(update={"links": self._links(config)})

    def read(self, config: CellConfig) -> Fingerprint:
        """Return the fingerprint, read anew: a block lasts long enough for its user to edit a source meanwhile."""
        return self._read(config).model_copy(update={"links": self._links(config)})

    def _read(self, config: CellConfig) -> Fingerprint:
        version = self._version(config)
        software = version.known.software if version is not None else {}
        found = self._known[_key(config)] = fingerprint(self._sources(config), config.accelerator, software)
        return found

    def _sources(self, config: CellConfig) -> dict[str, str]:
        try:
            return source_digests(targets(config), self._path(config))
        except InputError:
            return {}  # a package was removed after the plan: the run itself reports that better

    def _path(self, config: CellConfig) -> ImportPath:
        version = self._version(config)
        return ImportPath.of_home(self._home) if version is None else version.path

    @cached_property
    def _own_links(self) -> frozenset[str]:
        """The names of the symbolic links in the working folder itself."""
        with os.scandir(self._home) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())

    def _links(self, config: CellConfig) -> dict[str, str]:
        """Return where each path of a config leads that goes through a symbolic link, by key."""
        found = {}
        for key, text in _paths(config.raw):
            if "/" in text or text in self._own_links:
                place = self._home / placed_paths(text, self._home)
                real = os.path.realpath(place)
                if real != os.path.normpath(place):
                    found[key] = frozen_paths(real, self._home)
        return found

    def why_again(self, record: Record) -> str | None:
        """Return why the run of `record` is to be measured again, or None if the record stands."""
        if not ended_for_now(record, self._since):
            return f"it ended as {record.outcome}, which is no answer"
        then, now = record.fingerprint, self.fingerprint(record.config)
        if self._is_gone(record.config):
            now = now.model_copy(update={"sources": then.sources})
        if self._site is not None:
            then, now = (self._from_the_head(one, record.config, self._site) for one in (then, now))
        return None if then.matches(now) else difference(then, now)

    def _from_the_head(self, one: Fingerprint, config: CellConfig, site: Site) -> Fingerprint:
        """Return the part of a node's fingerprint that the head of its cluster can compare.

        A container has packages of its own, and a path outside the working folder may lead elsewhere on a node.
        """
        sources, software = one.sources, one.software
        if any(of_kind.jobs.container for of_kind in (site, *(site.of_kind(kind.name) for kind in site.kinds))):
            path = self._path(config)
            sources, software = {name: digest for name, digest in sources.items() if brings(path, name)}, {}
        inside = {key for key, text in _paths(config.raw) if not text.startswith("/")}
        links = {key: place for key, place in one.links.items() if key in inside}
        return Fingerprint(hardware={}, software=software, builds={}, sources=sources, links=links)

    def _version(self, config: CellConfig) -> VersionAtHand | None:
        return None if self._versions is None else self._versions.of(config)

    def _is_gone(self, config: CellConfig) -> bool:
        """Return whether a config's version has no tree any more: what its digest names cannot have changed."""
        return config.version is not None and self._version(config) is None


def ended_for_now(record: Record, since: str | None) -> bool:
    """Return whether the command that began at `since` does not try the run again: it has an answer, or failed in it.

    A sweep may need several Snakemakes, and a block several supervisors, in one command.
    """
    return record.outcome.settled or (since is not None and record.started_at >= since)


def standing(records: Iterable[Record], folder: SweepFolder, site: Site) -> set[str]:
    """Return the names of the runs whose records stand, as far as this machine can tell."""
    present = Present(folder.home, folder.name, site, since=command_began(folder))
    return {record.run for record in records if present.why_again(record) is None}


def _key(config: CellConfig) -> str:
    return canonical_json([config.accelerator, sorted(targets(config)), config.version_id])


def _paths(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of each value below `value` that may name a file."""
    if isinstance(value, str):
        if value and not key.endswith("_target_") and "\0" not in value and "://" not in value:
            yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _paths(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _paths(item, f"{key}.{number}")


def difference(then: Fingerprint, now: Fingerprint) -> str:
    """Return which entries of two fingerprints differ, with both values, in words."""
    changed = []
    for part in ("hardware", "software", "sources", "links"):
        old, new = getattr(then, part), getattr(now, part)
        changed += [
            f"{part} {key}: {_short(old.get(key))} then, {_short(new.get(key))} now"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
    return "; ".join(changed)


def _short(value: str | None) -> str:
    return "absent" if value is None else value if len(value) < 40 else f"{value[:12]}..."


# The results of a sweep that still stand, found from its files alone and before anything is scheduled.


@dataclass(frozen=True)
class RunState:
    """One wanted run as its files show it; `outcome` is `not_run` where there is no usable record."""

    run: str
    block: str
    outcome: Outcome
    reason: str | None = None

    @property
    def settled(self) -> bool:
        """Whether the run needs no further attempt."""
        return self.outcome.settled


@dataclass(frozen=True)
class Audit:
    """Every wanted run's state in plan order, the blocks whose done file was removed, and the damaged files."""

    runs: tuple[RunState, ...]
    reopened: tuple[str, ...]
    damaged: tuple[DamagedFile, ...]

    @property
    def unsettled(self) -> tuple[RunState, ...]:
        """The runs that the next command attempts."""
        return tuple(run for run in self.runs if not run.settled)

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """The number of runs by outcome."""
        return Counter(run.outcome for run in self.runs)


def audit(folder: SweepFolder, *, check_present: bool = False) -> Audit:
    """Look at every wanted run of the sweep, reopen blocks whose done file is not true, set damaged files aside.

    With `check_present`, a block is also reopened if its records were made under other conditions than the present
    ones, as far as this machine can tell (`standing.skips`).
    Damaged files of a block that a living supervisor works on are named, but left to it. Raises DamagedFile for a
    damaged manifest.
    """
    manifest = _manifest(folder)
    sweep_up(folder)
    since = command_began(folder)
    present = Present(folder.home, folder.name, manifest.site, since=since) if check_present else None
    runs: list[RunState] = []
    reopened: list[str] = []
    damaged: list[DamagedFile] = []
    for planned in manifest.blocks:
        found = _Block(folder, planned.name, planned.runs, damaged)
        states = found.states()
        runs += states
        if found.done_is_false(states, present, since):
            folder.done(planned.name).unlink(missing_ok=True)
            reopened.append(planned.name)
    return Audit(tuple(runs), tuple(reopened), tuple(damaged))


def _manifest(folder: SweepFolder) -> Manifest:
    try:
        return Manifest.read(folder.manifest)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.why}; the same `accelsweep run` writes it anew") from None


class _Block:
    def __init__(self, folder: SweepFolder, name: str, wanted: tuple[str, ...], damaged: list[DamagedFile]) -> None:
        self._folder = folder
        self._name = name
        self._wanted = wanted
        self._damaged = damaged
        self._busy = living_hold(folder.hold(name)) is not None
        self._records: dict[str, Record] = {}

    def states(self) -> list[RunState]:
        """Return the state of each wanted run, and set damaged files of the block aside."""
        self._check(self._folder.block(self._name))
        return [self._state(run) for run in self._wanted]

    def done_is_false(self, states: list[RunState], present: Present | None, since: str | None) -> bool:
        """Return whether there is a false done file. The present command, if there is one, began at `since`."""
        path = self._folder.done(self._name)
        try:
            done = Done.read(path)
        except FileNotFoundError:
            return False
        except DamagedFile as error:
            self._set_aside(error)
            return True
        ended = {run for run, record in self._records.items() if ended_for_now(record, since)}
        true = all(state.run in ended and done.records.get(state.run) == self._digest(state.run) for state in states)
        if present is not None:
            true = true and all(present.why_again(record) is None for record in self._records.values())
        return not true

    def _digest(self, run: str) -> str:
        return sha256_file(self._folder.record(run))

    def _state(self, run: str) -> RunState:
        try:
            record = RunFolder(self._folder.run(run), run).record()
        except DamagedFile as error:
            self._set_aside(error)
            return RunState(run, self._name, Outcome.not_run, f"its record is damaged: {error.why}")
        if record is None:
            return RunState(run, self._name, Outcome.not_run, why_not_run(self._folder, self._name))
        damage = steps_damage(record, self._folder.steps(run))
        if damage is not None:
            self._set_aside(damage)
            return RunState(run, self._name, Outcome.not_run, f"its steps.parquet is damaged: {damage.why}")
        self._records[run] = record
        return RunState(run, self._name, record.outcome, record.reason)

    def _check(self, path: Path) -> None:
        try:
            Block.read(path)
        except FileNotFoundError:
            self._damaged.append(DamagedFile(path, "it is missing; the same `accelsweep run` writes it anew"))
        except DamagedFile as error:
            self._set_aside(DamagedFile(error.path, f"{error.why}; the same `accelsweep run` writes it anew"))

    def _set_aside(self, error: DamagedFile) -> None:
        if self._busy or not error.path.exists():
            self._damaged.append(error)
            return
        aside = set_aside(error.path)
        self._damaged.append(DamagedFile(error.path, f"{error.why}; set aside as {aside.name}"))

"""Finished runs that still stand: their record is whole, is an answer, and was made under the present conditions.

The head of a sweep on a cluster cannot tell the hardware of the nodes, but it reads the same sources and links as they
do. What it finds changed is handed to the nodes again, and they compare everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import InputError
from accelsweep.core.cells.cell import frozen_paths, placed_paths
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.recorded.record import Fingerprint, Record
from accelsweep.core.sites.site import Site
from accelsweep.measure.surroundings.fingerprint import fingerprint
from accelsweep.plan.code.import_path import ImportPath
from accelsweep.plan.code.sources import brings, source_digests, targets
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import command_began
from accelsweep.supervise.standing.versions import VersionAtHand, Versions


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

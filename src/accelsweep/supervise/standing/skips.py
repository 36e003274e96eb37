"""Finished runs that still stand: their record is whole, is an answer, and was made under the present conditions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from accelsweep.base.documents import canonical_json
from accelsweep.base.errors import InputError
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.recorded.record import Fingerprint, Record
from accelsweep.core.sites.site import Site
from accelsweep.measure.surroundings.fingerprint import fingerprint
from accelsweep.plan.code.import_path import ImportPath
from accelsweep.plan.code.sources import source_digests, targets
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import command_began
from accelsweep.supervise.standing.versions import VersionAtHand, Versions


class Present:
    """The present conditions of a measurement.

    Packages of the user's are looked for in `home` first, or in the tree of the version that a config holds.
    """

    def __init__(self, home: Path, sweep: str | None = None, *, since: str | None = None) -> None:
        """`sweep` names the sweep whose versions are looked for.

        `since` is when the present command began (UTC, ISO 8601). What failed in it is not tried again in it.
        """
        self._home = home
        self._since = since
        self._versions = None if sweep is None else Versions(SweepFolder(home, sweep))
        self._known: dict[str, Fingerprint] = {}

    def fingerprint(self, config: CellConfig) -> Fingerprint:
        """Return the present fingerprint for a cell's config: its accelerator's hardware, its own packages' sources."""
        key = _key(config)
        return self._known[key] if key in self._known else self.read(config)

    def read(self, config: CellConfig) -> Fingerprint:
        """Return the fingerprint, read anew: a block lasts long enough for its user to edit a source meanwhile."""
        version = self._version(config)
        software = version.known.software if version is not None else {}
        found = self._known[_key(config)] = fingerprint(self._sources(config), config.accelerator, software)
        return found

    def _sources(self, config: CellConfig) -> dict[str, str]:
        version = self._version(config)
        path = ImportPath.of_home(self._home) if version is None else version.path
        try:
            return source_digests(targets(config), path)
        except InputError:
            return {}  # a package was removed after the plan: the run itself reports that better

    def why_again(self, record: Record) -> str | None:
        """Return why the run of `record` is to be measured again, or None if the record stands."""
        if not ended_for_now(record, self._since):
            return f"it ended as {record.outcome}, which is no answer"
        now = self.fingerprint(record.config)
        if self._is_gone(record.config):
            now = now.model_copy(update={"sources": record.fingerprint.sources})
        return None if record.fingerprint.matches(now) else difference(record.fingerprint, now)

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
    """Return the names of the runs whose records stand, as far as this machine can tell.

    On a cluster every settled record stands, because only the nodes can tell whether they have changed.
    """
    since = command_began(folder)
    if site.scheduler != "local":
        return {record.run for record in records if ended_for_now(record, since)}
    present = Present(folder.home, folder.name, since=since)
    return {record.run for record in records if present.why_again(record) is None}


def _key(config: CellConfig) -> str:
    return canonical_json([config.accelerator, sorted(targets(config)), config.version_id])


def difference(then: Fingerprint, now: Fingerprint) -> str:
    """Return which entries of two fingerprints differ, with both values, in words."""
    changed = []
    for part in ("hardware", "software", "sources"):
        old, new = getattr(then, part), getattr(now, part)
        changed += [
            f"{part} {key}: {_short(old.get(key))} then, {_short(new.get(key))} now"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
    return "; ".join(changed)


def _short(value: str | None) -> str:
    return "absent" if value is None else value if len(value) < 40 else f"{value[:12]}..."

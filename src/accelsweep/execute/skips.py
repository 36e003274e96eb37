"""Which finished runs still stand: their record is whole, is an answer, and was made under what is present now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from accelsweep.core.record import Fingerprint, Record
from accelsweep.measure.fingerprint import fingerprint


class Present:
    """What a run measured now would be measured under. `sources` are the digests of the user's packages now."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._of = cache(lambda accelerator: fingerprint(sources, accelerator))

    def fingerprint(self, config: Mapping[str, Any]) -> Fingerprint:
        """Return the present fingerprint for a cell's config."""
        found = self._of(config.get("accelerator"))
        assert isinstance(found, Fingerprint)
        return found

    def why_again(self, record: Record) -> str | None:
        """Return why the run of `record` is to be measured again, or None if the record stands."""
        if not record.outcome.settled:
            return f"it ended as {record.outcome}, which is no answer"
        now = self.fingerprint(record.config)
        return None if record.fingerprint.matches(now) else difference(record.fingerprint, now)


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

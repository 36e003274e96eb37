"""`accelsweep import FILE --from SOURCE`: results that others publish, as rows of this folder with their source."""

from __future__ import annotations

import re
from pathlib import Path

from accelsweep.core.recorded.external import ExternalResults
from accelsweep.driver.console import say
from accelsweep.errors import InputError
from accelsweep.records.layout import check_sweep_name
from accelsweep.significant_digits import count_of
from accelsweep.state.external.files import external_file, read_published


def import_rows(home: Path, path: Path, source: str, device: str | None, name: str | None) -> ExternalResults:
    """Read a file of `source`, write its rows to `external/NAME.json` in `home`, and return them.

    `name` is by default that of the source and the file. Raises InputError, before anything is written, for a damaged
    or a foreign file, and where other rows have this name.
    """
    found = read_published(path, source, device)
    place = external_file(home, check_sweep_name(name or f"{source}-{_plain(path.stem)}"))
    if place.exists() and ExternalResults.read(place) != found:
        raise InputError(f"{place} is there already, with other rows: remove it, or take another name with --name")
    place.parent.mkdir(exist_ok=True)
    found.write(place)
    models = len({row.model for row in found.rows})
    devices = sorted({row.device for row in found.rows})
    named = ", ".join(devices[:4]) + (", ..." if len(devices) > 4 else "")
    say(f"{place}: {count_of(len(found.rows), 'row')} of {count_of(models, 'model')} by {source}, on {named}")
    say(f"a claim shows a row beside its value with `published: {{WORDS: {{rows: {place.stem}, model: MODEL}}}}`")
    return found


def _plain(stem: str) -> str:
    """Return a file's stem in the letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")

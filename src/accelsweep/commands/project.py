"""`accelsweep project`: the best measured setting on devices that nobody here has. It writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.config.prices import read_prices
from accelsweep.core.findings.projections import Elsewhere
from accelsweep.driver.console import Listing, say, show
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.report.elsewhere.table import ELSEWHERE_TITLES, TITLE, elsewhere_entries, sentences

if TYPE_CHECKING:
    from accelsweep.analyse.beside.elsewhere import Onto


def project_sweep(home: Path, name: str, onto: str | None, prices: str | None, *, as_json: bool = False) -> None:
    """Print the projections. Raises InputError for an unknown sweep or device, and for prices that cannot be read."""
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import look_up

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    wanted = _onto(home, manifest, onto, prices)
    found = analyse(look_up(folder, manifest), manifest, wanted).elsewhere or Elsewhere(
        reason="not projected: this sweep has no measured run of a model"
    )
    if as_json:
        from accelsweep.answers.forms.projected import ProjectAnswer

        say(ProjectAnswer.made_of(found, sweep=name).text())
        return
    _print(name, found)


def _onto(home: Path, manifest: Manifest, onto: str | None, prices: str | None) -> Onto:
    from accelsweep.analyse.beside.elsewhere import Onto
    from accelsweep.devices.datasheets import datasheet

    usual = Onto.usual(manifest)
    keys = [key.strip() for key in (onto or "").split(",") if key.strip()]
    devices = tuple(datasheet(key) for key in dict.fromkeys(keys)) or usual.devices
    return Onto(devices, usual.prices if prices is None else read_prices(home, prices))


def _print(name: str, found: Elsewhere) -> None:
    if found.reason is not None:
        say(found.reason)
        return
    rows = tuple(tuple(entry.text for entry in elsewhere_entries(one)) for one in found.devices)
    for form in dict.fromkeys(one.form for one in found.devices):
        own = tuple(row for row, one in zip(rows, found.devices, strict=True) if one.form == form)
        show(Listing(f"{name}, {form}: {TITLE.lower()}", ELSEWHERE_TITLES, own))
    for line in sentences(found):
        say(line)
    for (form, note), names in _noted(found).items():
        say(f"{form}, {', '.join(names)}: {note}")


def _noted(found: Elsewhere) -> dict[tuple[str, str], list[str]]:
    """Return what is said of projections beside the tables, each once with the names of its devices."""
    noted: dict[tuple[str, str], list[str]] = {}
    for one in found.devices:
        for note in filter(None, (*one.notes, one.reason, one.cheaper, *one.monthly)):
            noted.setdefault((one.form, note), []).append(one.name)
    return noted

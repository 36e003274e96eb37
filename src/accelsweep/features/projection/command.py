"""`accelsweep project`: the best measured setting on devices that nobody here has. It writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, SweepName
from accelsweep.config.prices import read_prices
from accelsweep.driver.console import Listing, say, show
from accelsweep.driver.json_output import Answer
from accelsweep.features.projection.model import Elsewhere, Projected, Unseen
from accelsweep.features.projection.report import ELSEWHERE_TITLES, TITLE, elsewhere_entries, sentences
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest

if TYPE_CHECKING:
    from accelsweep.features.projection.analysis import Onto


# The answer of `accelsweep project`.


class ProjectAnswer(Answer):
    """`accelsweep project NAME --json`: one setting on devices that were not measured. None of it is a measurement."""

    kind: ClassVar[str] = "project"

    sweep: str = Field(description="the sweep's name")
    reason: str | None = Field(description="why nothing is projected")
    cell: str | None = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    here: str = Field(description="the device that it was measured on")
    batch: int = Field(description="the batch of one device")
    rate_here: float | None = Field(description="the measured rate, in samples per second")
    disturbed: bool = Field(description="whether others used the machine meanwhile; then there are no ratios to it")
    devices: tuple[Projected, ...] = Field(description="the projections, all intervals are of 90 %")
    unseen: tuple[Unseen, ...] = Field(description="how wrong projections were on devices that the fit had not seen")
    sources: tuple[str, ...] = Field(description="where the published rates come from")


def project_sweep(home: Path, name: str, onto: str | None, prices: str | None, *, as_json: bool = False) -> None:
    """Print the projections. Raises InputError for an unknown sweep or device, and for prices that cannot be read."""
    from accelsweep.analysis.analyse_sweep import Analysis
    from accelsweep.analysis.collect import look_up
    from accelsweep.features.projection.analysis import project_onto

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    wanted = _onto(home, manifest, onto, prices)
    found = project_onto(Analysis.of(look_up(folder, manifest), manifest), wanted) or Elsewhere(
        reason="not projected: this sweep has no measured run of a model"
    )
    if as_json:
        say(ProjectAnswer.made_of(found, sweep=name).text())
        return
    _print(name, found)


def _onto(home: Path, manifest: Manifest, onto: str | None, prices: str | None) -> Onto:
    from accelsweep.devices.datasheets import datasheet
    from accelsweep.features.projection.analysis import Onto

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


def project(
    name: SweepName,
    onto: Annotated[
        str | None, typer.Option(help="devices by their keys, e.g. h100-sxm,l4 (default: those of the report)")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="a file of prices, or its name in conf/prices")] = None,
    as_json: AsJson = False,
) -> None:
    """`accelsweep project NAME`."""
    project_sweep(Path.cwd(), name, onto, prices, as_json=as_json)

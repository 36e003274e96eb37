"""`accelsweep project`: project the best measured setting onto unavailable devices. Writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, SweepName
from accelsweep.config.prices import read_prices
from accelsweep.driver.console import Listing, say, show
from accelsweep.driver.json_output import Answer
from accelsweep.features.projection.model import Projections
from accelsweep.features.projection.report import TITLE, TITLES, projection_entries, sentences
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest


class ProjectAnswer(Answer, Projections):
    """`accelsweep project NAME --json`: one setting on devices that were not measured. Contains no measurements."""

    kind: ClassVar[str] = "project"

    sweep: str = Field(description="the sweep's name")


def project_sweep(home: Path, name: str, onto: str | None, prices: str | None, *, as_json: bool = False) -> None:
    """Print the projections. Raises InputError if a sweep or device is unknown, or prices cannot be read."""
    from accelsweep.analysis.analyse_sweep import Analysis
    from accelsweep.analysis.collect import read_runs
    from accelsweep.devices.datasheets import datasheet
    from accelsweep.features.projection.analysis import Targets, project_onto

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    default = Targets.default(manifest)
    keys = [key.strip() for key in (onto or "").split(",") if key.strip()]
    devices = tuple(datasheet(key) for key in dict.fromkeys(keys)) or default.devices
    targets = Targets(devices, default.prices if prices is None else read_prices(home, prices))
    projections = project_onto(Analysis.of(read_runs(folder, manifest), manifest), targets) or Projections(
        reason="not projected: this sweep has no measured run of a model"
    )
    if as_json:
        say(ProjectAnswer(**dict(projections), sweep=name).text())
    elif projections.reason is not None:
        say(projections.reason)
    else:
        _print(name, projections)


def _print(name: str, projections: Projections) -> None:
    for form in dict.fromkeys(projection.form for projection in projections.devices):
        rows = [projection_entries(projection) for projection in projections.devices if projection.form == form]
        texts = tuple(tuple(entry.text for entry in row) for row in rows)
        show(Listing(f"{name}, {form}: {TITLE.lower()}", TITLES, texts))
    for line in sentences(projections):
        say(line)
    notes: dict[tuple[str, str], list[str]] = {}  # each note once, with the names of the devices
    for projection in projections.devices:
        for note in filter(None, (*projection.notes, projection.reason, projection.cheaper, *projection.monthly)):
            notes.setdefault((projection.form, note), []).append(projection.name)
    for (form, note), names in notes.items():
        say(f"{form}, {', '.join(names)}: {note}")


def project(
    name: SweepName,
    onto: Annotated[
        str | None, typer.Option(help="device keys, e.g. h100-sxm,l4 (default: the devices in the report)")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="a price file, or its name in conf/prices")] = None,
    as_json: AsJson = False,
) -> None:
    """`accelsweep project NAME`."""
    project_sweep(Path.cwd(), name, onto, prices, as_json=as_json)

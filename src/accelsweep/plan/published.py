"""Published rows that claims name, put into the plan as numbers: a report needs no file beside the sweep."""

from __future__ import annotations

from pathlib import Path

from accelsweep.config.sweep_options import Settings
from accelsweep.core.claims.claims import Claim, ClaimFigure
from accelsweep.core.recorded.external import ExternalResults, ExternalRow, Quoted
from accelsweep.devices.datasheets import datasheet
from accelsweep.errors import InputError, nearest
from accelsweep.significant_digits import count_of
from accelsweep.state.external.files import kept


def with_published(settings: Settings, home: Path) -> Settings:
    """Return the settings with the value of each external row that a claim names, under its name and its source.

    Raises InputError where there is no such row, where there are several, and where its unit is another. Raises it too
    where a figure is projected onto a board that is not known.
    """
    claims = tuple(_claim(claim, home) for claim in settings.report.claims)
    if claims == settings.report.claims:
        return settings
    return settings.model_copy(update={"report": settings.report.model_copy(update={"claims": claims})})


def _claim(claim: Claim, home: Path) -> Claim:
    figures = tuple(_figure(claim.id, figure, home) for figure in claim.figures)
    analogue = claim.analogue
    if analogue is not None:
        own = tuple(_figure(claim.id, figure, home) for figure in analogue.figures)
        analogue = analogue.model_copy(update={"figures": own})
    return claim.model_copy(update={"figures": figures, "analogue": analogue})


def _figure(claim: str, figure: ClaimFigure, home: Path) -> ClaimFigure:
    if figure.projected is not None:
        datasheet(figure.projected)
    values: dict[str, float | Quoted] = {}
    for name, value in figure.published.items():
        if isinstance(value, Quoted):
            rows = kept(home, value.rows)
            row = _only(claim, value, rows)
            if row.unit != figure.unit:
                ours = figure.unit or "a ratio"
                raise InputError(
                    f"claim {claim!r}: {value.model} of {value.rows} is in {row.unit}, the figure in {ours}"
                )
            values[f"{name} ({rows.source}: {row.circumstances})"] = row.value
        else:
            values[name] = value
    return figure.model_copy(update={"published": values})


def _only(claim: str, quoted: Quoted, rows: ExternalResults) -> ExternalRow:
    """Return the one row with the wanted values."""
    wanted = quoted.wanted
    found = [row for row in rows.rows if all(getattr(row, name) == value for name, value in wanted.items())]
    if len(found) == 1:
        return found[0]
    words = ", ".join(f"{name}={value}" for name, value in wanted.items())
    if found:
        first = "; ".join(row.circumstances for row in found[:3])
        raise InputError(
            f"claim {claim!r}: {count_of(len(found), 'row')} of {quoted.rows} have {words}, such as {first}"
        )
    models = sorted({row.model for row in rows.rows})
    hint = "" if quoted.model in models else nearest(quoted.model, models)
    raise InputError(f"claim {claim!r}: no row of {quoted.rows} has {words}{hint}")

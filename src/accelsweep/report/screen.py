"""The first screen: four tiles, the main reason for doubt, and a strip that says where the numbers come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.core.findings.choices import Certainty, Recommendation
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.recorded.doubt_words import in_words
from accelsweep.core.recorded.metrics import MEMORY_METRICS
from accelsweep.core.recorded.record import Doubt
from accelsweep.report import format as fmt
from accelsweep.report.tables.readings import ENERGY, cost_of, metric_entry, quality_words

_RUNS = re.compile(r"(\d+ of \d+ runs): ")
_NO_COST = "add prices=NAME"
_MONEY = (("usd_per_result", "Cost of a result"), ("usd_per_million_samples", "Cost of 1M samples"), (ENERGY, "Energy"))


@dataclass(frozen=True)
class Tile:
    """One figure of the first screen: its name, its value now, and a smaller line with interval and baseline."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Amber:
    """The main reason for doubt: `words` with its `code` (empty without one), the `remedy` and the `minutes` of it."""

    words: str
    code: str
    remedy: str
    minutes: str


def tiles(findings: Findings, chosen: CellFinding | None) -> tuple[Tile, ...]:
    """Return rate, memory, quality, and cost or energy of the chosen setting, of the baseline where none is chosen."""
    base = next((cell for cell in findings.cells if cell.cell == findings.baseline and cell.measured), None)
    now = chosen or base
    if now is None:
        return ()
    other = base if base is not None and base is not now else None
    title = _capital(fmt.rate_title(findings.rate_metric))
    return (_rate(title, now, other), _memory(now, other), _quality(findings, now, other), _price(findings, now, other))


def amber(advice: Recommendation, doubts: Sequence[Doubt]) -> Amber | None:
    """Return the main reason for doubt, its remedy and the minutes of the advised command; None without any."""
    minutes = _minutes(advice)
    if doubts:
        main = next((doubt for doubt in doubts if doubt.disturbing), doubts[0])
        found = _RUNS.match(main.message)
        return Amber(_capital(in_words(main)) + (f" in {found[1]}" if found else ""), main.code, main.remedy, minutes)
    if advice.certainty is Certainty.sure or not minutes:
        return None
    return Amber("Something is still open", "", "", minutes)


def strip(findings: Findings) -> tuple[str, ...]:
    """Return model, data, machine, torch, commit, days and accelsweep's version; an unknown one is left out."""
    origin, environment = findings.origin, findings.environment
    commits = ", ".join(origin.commits)
    changes = " with local changes" if origin.changed else ""
    torch = environment.get("torch")
    own = environment.get("accelsweep")
    return tuple(
        _some(
            _several(origin.model),
            _several(origin.data),
            _machine(findings),
            f"torch {torch}" if torch else "",
            f"commit {commits}{changes}" if commits else "no commit known",
            " to ".join(origin.dates),
            f"accelsweep {own}" if own else "",
        )
    )


def _machine(findings: Findings) -> str:
    """Return the machines with their threads and memory: `AMD EPYC, 2 threads, 23.5 GiB`."""
    origin = findings.origin
    threads = " to ".join(str(count) for count in _ends(origin.threads))
    memory = " to ".join(fmt.number(size, "B") for size in _ends(origin.memory_bytes))
    names = _several([hardware.name for hardware in findings.hardware])
    return ", ".join(_some(names, f"{threads} threads" if threads else "", memory))


def _some(*parts: str) -> list[str]:
    return [part for part in parts if part]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _several(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _ends(values: Sequence[int]) -> Sequence[int]:
    return tuple(dict.fromkeys((values[0], values[-1]))) if values else ()


def _minutes(advice: Recommendation) -> str:
    time = fmt.in_about(advice).removeprefix(", in ")
    if not advice.settle_blocks or not time:
        return ""
    return f"{fmt.count(advice.settle_blocks, 'more repeat')} take{'s' if advice.settle_blocks == 1 else ''} {time}"


def _tile(name: str, value: Estimate | None, other: Estimate | None, *more: str) -> Tile:
    """Return a tile of two estimates; the baseline's interval stands in its row below."""
    text, bracket, rest = fmt.estimate_text(value).partition(" [")
    was = f"baseline {fmt.estimate_text(other).partition(' [')[0]}" if other is not None else ""
    return Tile(name, text.partition(" (no interval")[0], ", ".join(_some(f"[{rest}" if bracket else "", *more, was)))


def _rate(title: str, now: CellFinding, other: CellFinding | None) -> Tile:
    return _tile(title, now.rate, other.rate if other else None, "" if other else "of the baseline")


def _memory(now: CellFinding, other: CellFinding | None) -> Tile:
    entry, was = metric_entry(now, MEMORY_METRICS), metric_entry(other, MEMORY_METRICS) if other else None
    beside = f"baseline {was.text}" if was is not None and was.order is not None else ""
    known = entry.order is not None
    return Tile("Memory", entry.text, ", ".join(_some(now.memory_words if known else entry.detail, beside)))


def _quality(findings: Findings, now: CellFinding, other: CellFinding | None) -> Tile:
    name = (findings.quality_metric or "quality").removeprefix("val_")
    if now.quality is None:
        return Tile(_capital(name), fmt.ABSENT, "" if findings.quality_metric else "set measure.quality_metric")
    bare = now.quality.model_copy(update={"unit": ""})
    was = other.quality.model_copy(update={"unit": ""}) if other and other.quality else None
    return _tile(_capital(name), bare, was, quality_words(now) if other else "")


def _price(findings: Findings, now: CellFinding, other: CellFinding | None) -> Tile:
    for name, title in _MONEY:
        if (own := cost_of(now, name)) is not None:
            return _tile(title, own, cost_of(other, name) if other else None)
    return Tile("Cost", "not known", findings.costs_note if findings.prices and findings.costs_note else _NO_COST)

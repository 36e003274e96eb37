"""Rates that others published, with the traits of their models: `data/models.csv` and `data/rates.csv`.

`benchmarks/published_rates.py` makes both files from the sources that the first lines of `rates.csv` name. A model is
named NAME@SIDE, after the side of its pictures or the length of its texts. An entry of `rates.csv` is a
batch and a rate, behind a letter that stands for a form and a device.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelsweep.project.parts import family
from accelsweep.records.run_record import NetworkFamily, Traits

MODELS_TABLE = Path(__file__).parent / "data" / "models.csv"
RATES_TABLE = Path(__file__).parent / "data" / "rates.csv"
COUNTED_COLUMNS = (
    "flops_convolution",
    "flops_grouped",
    "flops_product",
    "flops_attention",
    "activations",
    "others",
    "kernels",
    "parameters",
)
"""The columns of `models.csv` after the model's name and the length of its input's side."""


@dataclass(frozen=True)
class Rate:
    """A published rate in samples per second: `form` is a key of `parts.FORMS`, `device` one of `devices.devices`."""

    form: str
    device: str
    model: str
    batch: float
    samples_per_second: float
    traits: Traits
    family: NetworkFamily


def published() -> list[Rate]:
    """Return all rates, in the order of their models."""
    models = {row["model"]: _traits(row) for row in _rows(MODELS_TABLE)}
    kinds = {name: family(traits) for name, traits in models.items()}
    lines = [line for line in RATES_TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    columns = dict(line.split("=") for line in lines if line[1] == "=")
    found = []
    for model, entries in (line.split(",") for line in lines if line[1] != "="):
        for entry in entries.split(";"):
            letter, batch, rate = entry.split()
            form, device = columns[letter].split()
            found.append(Rate(form, device, model, float(batch), float(rate), models[model], kinds[model]))
    return found


def sources() -> tuple[str, ...]:
    """Return the sources of the rates, a line each."""
    lines = RATES_TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("# ") for line in lines if line.startswith("#"))


def _traits(row: dict[str, str]) -> Traits:
    counts: dict[str, Any] = {name: float(row[name]) for name in COUNTED_COLUMNS}
    return Traits(**counts, recurrent=row["recurrent"] == "1")


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))

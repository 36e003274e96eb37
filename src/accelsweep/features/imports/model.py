"""Results of others: rows that were measured elsewhere, each labelled with its source. They are never runs of ours.

They stand in `external/NAME.json`, one document for each imported file. No interval, verdict or advice is made from
them. A claim may show them beside its own value.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from accelsweep.json_documents import AtLeast1, Document, Frozen, NonEmpty
from accelsweep.records.findings import Section

PublishedTask = Literal["training", "inference"]


class ExternalRow(Frozen):
    """One result of others: `value` in `unit` of `model` on `devices` devices.

    `device` is its name in the source, `board` the key of its datasheet where that is known. `precision` has the
    source's word. `batch_size` is that of one device and `image_size` is in pixels. `conditions` are further facts,
    such as the version of torch. A field that the source does not tell is None.
    """

    model: NonEmpty
    task: PublishedTask
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: NonEmpty
    device: NonEmpty
    board: str | None = None
    devices: AtLeast1 | None = None
    precision: str | None = None
    batch_size: AtLeast1 | None = None
    image_size: AtLeast1 | None = None
    conditions: dict[str, str] = Field(default_factory=dict)

    @property
    def circumstances(self) -> str:
        """The way it was measured, as far as known: `1 x RTX 4090, amp, batch 256, 224 pixels, torch 2.4.0`."""
        parts = (
            f"{self.devices} x {self.device}" if self.devices else self.device,
            self.precision,
            f"batch {self.batch_size}" if self.batch_size else None,
            f"{self.image_size} pixels" if self.image_size else None,
            *(f"{name} {value}" for name, value in self.conditions.items()),
        )
        return ", ".join(part for part in parts if part)


class ExternalResults(Document):
    """All rows of one imported file: who published them, the file's name and its SHA-256."""

    kind: ClassVar[str] = "external"

    source: NonEmpty
    file: NonEmpty
    sha256: NonEmpty
    rows: Annotated[tuple[ExternalRow, ...], Field(min_length=1)]


class RowBeside(Frozen):
    """An external row that a report of several sweeps shows beside them: its `source`, and the `file` it came from."""

    source: NonEmpty
    file: NonEmpty
    row: ExternalRow


class Quoted(Frozen):
    """A row of `external/ROWS.json` that a claim shows beside its value: the one that has all of these values."""

    rows: NonEmpty
    model: NonEmpty
    task: PublishedTask | None = None
    device: str | None = None
    devices: int | None = None
    precision: str | None = None
    batch_size: int | None = None
    image_size: int | None = None

    @property
    def wanted(self) -> dict[str, str | int]:
        """The values that the row must have, by their names."""
        return {name: value for name, value in self.model_dump(exclude={"rows"}).items() if value is not None}


class ImportedRows(Section):
    """The imported rows beside merged sweeps."""

    rows: tuple[RowBeside, ...]

"""Published results: rows measured by others, each with its source. They are never treated as our own runs.

Each imported file is stored as a document `external/NAME.json`. No interval, verdict or recommendation is derived from
its rows; a claim may show them next to its own value.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from accelsweep.json_documents import AtLeast1, Document, Frozen, NonEmpty
from accelsweep.records.findings import Section

PublishedTask = Literal["training", "inference"]


class ExternalRow(Frozen):
    """One published result: `value` in `unit` of `model` on `devices` devices. Fields missing from the source are None.

    `device` is the source's name for the device, `board` the key of its datasheet, if known. `precision` is as stated
    by the source, `batch_size` is per device, `image_size` is in pixels. `conditions` contains other facts, such as the
    torch version.
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
        """How the row was measured, as far as known: `1 x RTX 4090, amp, batch 256, 224 pixels, torch 2.4.0`."""
        parts = (
            f"{self.devices} x {self.device}" if self.devices else self.device,
            self.precision,
            f"batch {self.batch_size}" if self.batch_size else None,
            f"{self.image_size} pixels" if self.image_size else None,
            *(f"{name} {value}" for name, value in self.conditions.items()),
        )
        return ", ".join(part for part in parts if part)


class ExternalResults(Document):
    """All rows of an imported file, with the file's publisher, name and SHA-256."""

    kind: ClassVar[str] = "external"

    source: NonEmpty
    file: NonEmpty
    sha256: NonEmpty
    rows: Annotated[tuple[ExternalRow, ...], Field(min_length=1)]


class SourcedRow(Frozen):
    """A row with its `source` and the name of the `file` that it came from."""

    source: NonEmpty
    file: NonEmpty
    row: ExternalRow


class RowQuery(Frozen):
    """Selects the one row in `external/ROWS.json` that matches all of these values."""

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
        """The values that the row must match, keyed by field."""
        return self.model_dump(exclude={"rows"}, exclude_none=True)


class ImportedRows(Section):
    """The published rows in a report on several merged sweeps."""

    rows: tuple[SourcedRow, ...]

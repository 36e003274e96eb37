"""Whether a batch fits in a device's memory, by bounds: what must be kept, and what would be kept at most.

Training keeps weights, gradients and the optimiser's numbers, each in 32 bits. Of the forward pass it keeps at least
the results of products and convolutions, in the form's size. At most it keeps every result in 32 bits. Inference keeps
the weights, and at most the same. `SHARE` stands for the rest on the device, such as the allocator's.
"""

from __future__ import annotations

from accelsweep.core.findings.projections import Room
from accelsweep.project.parts import Form
from accelsweep.records.run_record import Traits

SHARE = 0.9
"""The share of a board's memory that a model may have: driver, libraries and gaps need the rest."""
FLOAT32_BYTES = 4
"""Bytes of a number in 32 bits."""
STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "none": 0}
"""Numbers that an optimiser keeps for each parameter; another one is taken for Adam."""


def room(traits: Traits, batch: int, optimizer: str, form: Form, memory_bytes: int | None) -> Room:
    """Return whether `batch` samples fit into `memory_bytes`."""
    if memory_bytes is None:
        return Room.unknown
    least, most = bounds(traits, batch, optimizer, form)
    if most <= SHARE * memory_bytes:
        return Room.fits
    return Room.too_large if least > SHARE * memory_bytes else Room.unsure


def bounds(traits: Traits, batch: int, optimizer: str, form: Form) -> tuple[float, float]:
    """Return the least and the most bytes that a step needs."""
    everything = (traits.activations + traits.others) * FLOAT32_BYTES * batch
    if not form.trains:
        return FLOAT32_BYTES * traits.parameters, FLOAT32_BYTES * traits.parameters + everything
    kept = FLOAT32_BYTES * traits.parameters * (2 + STATES.get(optimizer, 2))
    return kept + traits.activations * form.bytes_each * batch, kept + everything

"""The named parts of a step's time: what a model does, over what a device can do.

Operations are divided by a dense rate: the geometric mean of the format's peak and of twice the float32 peak. Boards
whose tensor cores were doubled without the rest do not run twice as fast. Numbers written are divided by bandwidth. A
kernel has a fixed time of its own, whatever the batch. The coefficients of the parts are fitted, see `fit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accelsweep.devices.datasheets import Datasheet
from accelsweep.records.run_record import NetworkFamily, Traits

WORK_PARTS = ("convolutions", "products", "attention", "grouped", "activations", "others", "kernels", "parameters")
"""The parts in the order of all vectors here."""

KERNEL_SECONDS = 5e-6
"""The fixed time of a kernel before its fitted coefficient, in seconds."""

GROUPED, ATTENTION, RARE = 0.03, 0.005, 0.8
"""Shares of a model's operations that decide its family."""


@dataclass(frozen=True)
class Form:
    """A task in a number format for which rates were published, such as training in mixed precision.

    `formats` are those of its matrix products, the first that a device has counts. `bytes_each` is the size of a number
    that is written.
    """

    key: str
    title: str
    formats: tuple[str, ...]
    bytes_each: int

    @property
    def trains(self) -> bool:
        """Whether a step has a backward pass."""
        return self.key.startswith("training")


INFERENCE = Form("inference-amp", "inference, mixed precision", ("float16",), 2)
TRAINING = Form("training-amp", "training, mixed precision", ("float16",), 2)
TRAINING_32 = Form("training-fp32", "training, 32 bits (TF32)", ("tf32",), 4)
FORMS = {form.key: form for form in (INFERENCE, TRAINING, TRAINING_32)}


class NotProjected(Exception):
    """There is no projection, and the message says why."""


def family(traits: Traits) -> NetworkFamily:
    """Return the kind of network, by the operations that do most of its work."""
    if traits.recurrent:
        return NetworkFamily.recurrent
    products = (traits.flops_product + traits.flops_attention) / traits.flops
    if products > RARE:
        attends = traits.flops_attention > ATTENTION * traits.flops or traits.others > traits.activations
        return NetworkFamily.attention if attends else NetworkFamily.dense
    if traits.flops_grouped > GROUPED * traits.flops:
        return NetworkFamily.depthwise
    return NetworkFamily.convolution if traits.flops_convolution > RARE * traits.flops else NetworkFamily.hybrid


def seconds(traits: Traits, batch: float, device: Datasheet, form: Form) -> tuple[float, ...]:
    """Return each part's seconds per sample before its coefficient, in the order of `WORK_PARTS`.

    Raises NotProjected where the datasheet lacks a figure.
    """
    peak = next((device.flops_per_second[name] for name in form.formats if name in device.flops_per_second), None)
    plain, bandwidth = device.flops_per_second.get("float32"), device.bandwidth_bytes_per_second
    if peak is None or plain is None or bandwidth is None:
        raise NotProjected(f"the datasheet of the {device.name} states no {_lacking(peak, plain, form)}")
    dense, moved = math.sqrt(peak * 2 * plain), form.bytes_each / bandwidth
    return (
        traits.flops_convolution / dense,
        traits.flops_product / dense,
        traits.flops_attention / dense,
        traits.flops_grouped / plain,
        traits.activations * moved,
        traits.others * moved,
        traits.kernels * KERNEL_SECONDS / batch,
        traits.parameters * moved / batch,
    )


def _lacking(peak: float | None, plain: float | None, form: Form) -> str:
    if peak is None:
        return f"peak in {' or '.join(form.formats)}"
    return "peak in float32" if plain is None else "bandwidth"

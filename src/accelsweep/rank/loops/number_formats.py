"""Whether a module's parameters have the number format that the record will state.

Lightning leaves the parameters of `32-true` and of mixed precisions as the user's code made them, so
`torch.set_default_dtype(torch.float64)` would train in twice the width.
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch

from accelsweep.base.errors import Unsupported

_ALLOWED = {
    "64-true": (torch.float64,),
    "32-true": (torch.float32,),
    "bf16-true": (torch.bfloat16,),
    "16-true": (torch.float16,),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-mixed": (torch.float32, torch.float16),
}
"""Precision -> the formats of its trained parameters; a strategy may keep the mixed ones' wide copy elsewhere."""


def refuse_other_formats(module: pl.LightningModule, precision: str) -> None:
    """Raise Unsupported where `module` trains a parameter in a format that is not one of `precision`."""
    allowed = _ALLOWED.get(precision)
    trained = [each for each in module.parameters() if each.requires_grad and each.is_floating_point()]
    other = next((each.dtype for each in trained if allowed is not None and each.dtype not in allowed), None)
    if other is not None:
        raise Unsupported(
            f"precision={precision}, but {type(module).__name__} trains parameters of {other}, which is another "
            f"setting: remove torch.set_default_dtype or the cast from its code{_instead(other)}"
        )


def _instead(found: torch.dtype) -> str:
    named = next((name for name, formats in _ALLOWED.items() if formats == (found,)), None)
    return f", or set precision={named}" if named else ""

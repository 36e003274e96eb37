"""Precisions that only one maker's devices have."""

from __future__ import annotations


def not_nvidia(precision: str, accelerator: str) -> str | None:
    """Return why a kind that is not NVIDIA's cannot have this precision; None for any that needs no such device."""
    if precision.startswith("transformer-engine"):
        return f"{precision} needs cuda: NVIDIA's Transformer Engine has no {accelerator} backend"
    return None

"""Whether a device's name is meant by a shorter word, such as `a100` for `NVIDIA A100-SXM4-80GB`."""

from __future__ import annotations

import re


def meant(short: str, name: str) -> bool:
    """Return whether every word of `short` is a word of `name`, or several of its words in a row written as one.

    Case does not count. `rtx4090` and `4090` mean `NVIDIA GeForce RTX 4090`; `a10` does not mean an A100.
    """
    words = _words(name)
    known = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    asked = _words(short)
    return bool(asked) and known.issuperset(asked)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9.]+", name.lower())

"""Text without the secrets in its addresses: one rule for logs, records, MLflow and reports.

Most secrets stand in addresses: `postgresql://me:secret@host/db`, `https://host/data?token=secret`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@\"']+@")
_PARAMETERS = re.compile(
    r"([?&][^=&\s\"']*(?:token|password|passwd|secret|key|signature|credential)[^=&\s\"']*=)[^&\s\"']+", re.IGNORECASE
)


def masked(text: str) -> str:
    """Return `text` with user names, passwords and tokens in its addresses replaced by `***`."""
    if "://" not in text and "=" not in text:  # nearly all texts of a plan, of which there are many
        return text
    return _PARAMETERS.sub(r"\1***", _CREDENTIALS.sub("***@", text))


def without_secrets(value: Any) -> Any:
    """Return a config (or a part of one) with every text in it `masked`; its numbers and its shape stay."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value

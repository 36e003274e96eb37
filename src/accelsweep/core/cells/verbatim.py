"""Values that are read from a mapping, typed, and written back as that very mapping.

A cell is named by the hash of its config, and files are sealed by the hash of their bytes. A default filled in on the
way, or another spelling of a number, would change the name of old measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_serializer,
    model_validator,
)


class Verbatim(BaseModel):
    """A frozen value with typed fields that also keeps the mapping it was read from, and is equal where those are."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    _raw: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def raw(self) -> dict[str, Any]:
        """The mapping as it was written, keys of the user's own included. It must not be changed."""
        return self._raw

    def changed(self, **values: Any) -> Self:
        """Return it with other values of these keys, or with keys more, read anew."""
        return type(self).model_validate({**self._raw, **values})

    @model_validator(mode="wrap")
    @classmethod
    def _kept(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(value)
        if isinstance(value, Mapping):
            found._raw = dict(value)
        return found

    @model_serializer(mode="plain")
    def _as_written(self) -> dict[str, Any]:
        return self._raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._raw == other._raw

    __hash__ = None  # type: ignore[assignment]  # it holds mappings, and equal ones may differ in their keys' order

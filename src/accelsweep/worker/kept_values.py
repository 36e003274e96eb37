"""Keeps what the resolvers of a Hydra config return, so that a sweep's later runs get the same values.

`${oc.env:DATA}` and the project's own resolvers may return something else tomorrow, or at each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

PER_RUN = "{run}"
"""Stands for values that differ between runs of the same setting, such as `${now:}` and the output folder."""


class KeptValues:
    """Makes a call of a resolver, such as `oc.env:DATA`, return its value in `kept`, or else the same value every time.

    `today` has the values without `kept`, and `used` those of the calls since it was last emptied.
    """

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self.kept = kept
        self.today: dict[str, Any] = {}
        self.used: dict[str, Any] = {}

    def install(self) -> None:
        """Observe `oc.env` and all resolvers registered from now on."""
        from omegaconf import OmegaConf
        from omegaconf.resolvers import oc

        register = OmegaConf.register_new_resolver

        def register_observed(name: str, resolver: Callable[..., Any], **options: Any) -> None:
            register(name, self._observed(name, resolver), **options)

        OmegaConf.register_new_resolver = staticmethod(register_observed)  # type: ignore[method-assign]
        register_observed("oc.env", oc.env, replace=True)

    def _observed(self, name: str, resolver: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(resolver)  # OmegaConf reads the signature
        def observed(*arguments: Any, **special: Any) -> Any:
            key = f"{name}:{','.join(map(str, arguments))}"
            if key not in self.today:
                value = resolver(*arguments, **special)
                if not isinstance(value, bool | int | float | str | None) or PER_RUN in f"{key} {value}":
                    return value
                self.today[key] = value
            self.used[key] = self.today[key]
            return self.kept.get(key, self.today[key])

        return observed

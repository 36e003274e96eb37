"""Keeps what the resolvers of a Hydra config return, so that a sweep's later runs get the same values.

`${oc.env:DATA}` and the project's own resolvers may return something else tomorrow, or at each call.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from accelsweep.redaction import is_secret_name
from accelsweep.run_config import PER_RUN

_PER_RUN_VARIABLE = re.compile(
    r"oc\.env:((LOCAL_|GROUP_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_\w+|TORCHELASTIC_\w+|SLURM_\w+|SGE_\w+|JOB_ID|NSLOTS|"
    r"CUDA_VISIBLE_DEVICES|TMPDIR)(,|$)"
)
"""Variables that a rank or a job sets."""


class KeptValues:
    """Makes a call of a resolver, such as `oc.env:DATA`, return its value in `kept`, or else the same value every time.

    `today` contains the values without `kept`, and `used` those that have been called since the caller last replaced
    it. If `composing` is set, the config is not for a run: secrets and values of a run are replaced by `{run}`.
    """

    def __init__(self, kept: Mapping[str, Any], *, composing: bool = False) -> None:
        self.kept = kept
        self._composing = composing
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
            if _PER_RUN_VARIABLE.match(key) or any(map(is_secret_name, re.split(r"\W+", key))):
                return PER_RUN if self._composing else resolver(*arguments, **special)
            if special:  # depends on the part of the config that calls it
                return resolver(*arguments, **special)
            if key not in self.today:
                try:
                    value = resolver(*arguments)
                except Exception:
                    if key not in self.kept:
                        raise
                    value = None  # such as a variable that is no longer set
                if not isinstance(value, bool | int | float | str | None) or PER_RUN in f"{key} {value}":
                    return value
                self.today[key] = value
            self.used[key] = self.today[key]
            return self.kept.get(key, self.today[key])

        return observed

"""Hydra's own keys, which its users know: each has its effect, is refused, or is said to have none."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from accelsweep.base.errors import InputError

_USED = ("hydra.sweeper", "hydra/sweeper", "hydra.searchpath", "hydra.mode")
_INSTEAD = {
    "hydra.run": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.sweep": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.output_subdir": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.job.chdir": "every run works in the folder in which the command is given",
}


def refuse_launcher(overrides: Sequence[Override]) -> None:
    """Raise InputError for a choice of Hydra's launcher, or a key of it: Snakemake starts the runs."""
    for override in overrides:
        if override.key_or_group.startswith(("hydra/launcher", "hydra.launcher")):
            raise InputError(
                f"{override.input_line}: Hydra launches nothing here, Snakemake starts the runs. Choose where with "
                "--profile, and how many at once with --jobs"
            )


def refuse_variables(master: DictConfig) -> None:
    """Raise InputError where `hydra.job.env_set` holds variables, which would reach no run."""
    if master.hydra.job.get("env_set"):
        name = next(iter(master.hydra.job.env_set))
        raise InputError(
            f"hydra.job.env_set has no effect here, because Hydra does not start the runs: write +env.{name}=VALUE, "
            "which every run gets and which is part of its setting"
        )


def without_effect(overrides: Sequence[Override]) -> list[str]:
    """Return a sentence for each of Hydra's own keys among `overrides` that changes nothing here."""
    keys = [override.key_or_group for override in overrides if override.is_hydra_override()]
    return [f"{key} has no effect here{_instead(key)}" for key in keys if not key.startswith(_USED)]


def _instead(key: str) -> str:
    return next((f": {said}" for known, said in _INSTEAD.items() if key == known or key.startswith(f"{known}.")), "")

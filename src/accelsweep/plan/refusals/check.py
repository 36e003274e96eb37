"""The thin typed check of a config: the keys that accelsweep itself reads, and nothing below `model` or `data`.

An unknown key is refused with the nearest known one. The keys of a model, a data set, an optimizer or the Trainer are
not checked here, but where these are built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.config import CellConfig, Measure, Serving
from accelsweep.core.cells.learning_rate import LearningRate
from accelsweep.core.planned.prices import Prices
from accelsweep.core.planned.settings import PILOT, Analysis, BlockSettings, Limits, Settings
from accelsweep.core.sites.site import Site
from accelsweep.engines.grid_engine.refuse import refuse_unfit_grid_engine
from accelsweep.engines.slurm.refuse import refuse_unfit_slurm
from accelsweep.plan.refusals.wording import FileOf, parsed
from accelsweep.plan.trainer import trainers_place
from accelsweep.repeats.resolution import FEWEST_BLOCKS

_MAY_BE_ABSENT = frozenset({"serving"})
"""Keys of groups that no config needs; absent, they are in no cell's name, so that older cells keep theirs."""


class Rule(BaseModel):
    """One `exclude:` rule: the combinations that `when` matches are dropped `because` of a stated reason."""

    model_config = ConfigDict(extra="forbid")

    when: Annotated[dict[str, Any], Field(min_length=1)]
    because: Annotated[StrictStr, Field(min_length=1)]


def science(config: dict[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf) -> CellConfig:
    """Return the checked scientific config, environment values as text; raise InputError for any fault in it.

    Top-level keys beyond the known ones must have been added with `+key=` (`added`) or be config groups (`groups`).
    """
    _refuse_unknown(config, added, groups, file_of)
    for key in CellConfig.model_fields:
        if key not in config and key not in _MAY_BE_ABSENT:
            raise InputError(f"the key '{key}' is missing; look in {file_of(key)}")
    parsed(Measure, config["measure"], "measure", file_of, extra="forbid")
    if config.get("serving") is not None:
        parsed(Serving, config["serving"], "serving", file_of, extra="forbid")
    checked = parsed(CellConfig, config, "", file_of)
    parsed(LearningRate, checked.optimizer or {}, "optimizer", file_of)
    refuse_unwritable(config)
    typed = {"precision": checked.precision, "env": checked.env}
    if all(config[key] == value for key, value in typed.items()):
        return checked
    return checked.changed(**typed)


def _refuse_unknown(config: Mapping[str, Any], added: frozenset[str], groups: Sequence[str], file_of: FileOf) -> None:
    if "experiment" in config:
        raise InputError(f"{file_of('experiment')} must begin with the line `# @package _global_` to have any effect")
    for key in config:
        if key not in CellConfig.model_fields and key not in added and key not in groups:
            raise InputError(
                f"unknown key '{key}'{nearest(str(key), CellConfig.model_fields)}; look in {file_of(str(key))}. "
                + (
                    f"An argument of Lightning's Trainer stands below `trainer`. {place}"
                    if (place := trainers_place(str(key)))
                    else f"A key of your own is added with +{key}=VALUE, on the command line or under "
                    "hydra.sweeper.params"
                )
            )


def refuse_unwritable(value: Any, key: str = "") -> None:
    """Raise InputError, naming the key, for a value that JSON cannot hold or that would not come back the same."""
    if value is None or isinstance(value, str | int):
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InputError(f"'{key}{name}': the key {name!r} must be text; put quotes around it")
            refuse_unwritable(item, f"{key}{name}.")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_unwritable(item, f"{key}{index}.")
    elif not isinstance(value, float):
        raise InputError(
            f"'{key[:-1]}' is of type {type(value).__name__}; only text, numbers, lists and mappings can be planned"
        )
    elif not math.isfinite(value):
        raise InputError(f"'{key[:-1]}' is {value}: a setting's values must be finite numbers")


def steering(values: Mapping[str, Any], file_of: FileOf) -> tuple[Settings, Site, list[Rule]]:
    """Return the checked plan-level part of a config; raise InputError for any fault in it."""
    refuse_unwritable(values)
    site = parsed(Site, values.get("site") or {}, "site", file_of)
    exclude = values.get("exclude") or []
    if not isinstance(exclude, list):
        raise InputError(f"exclude={exclude!r}: must be a list of rules; look in {file_of('exclude')}")
    rules = [parsed(Rule, rule, f"exclude.{number}", file_of) for number, rule in enumerate(exclude)]
    parts = {
        "limits": parsed(Limits, values.get("limits") or {}, "limits", file_of),
        "analysis": parsed(Analysis, values.get("analysis") or {}, "analysis", file_of),
        "prices": parsed(Prices, values.get("prices") or {}, "prices", file_of),
        "block": parsed(BlockSettings, values.get("block") or {}, "block", file_of),
    }
    rest = {
        key: values[key] for key in ("repeats", "repeats_most", "baseline", "report") if values.get(key) is not None
    }
    settings = parsed(Settings, {**rest, **parts, **_repeats(rest, file_of)}, "", file_of)
    _refuse_unfit_site(site, file_of)
    return settings, site, rules


def _repeats(values: Mapping[str, Any], file_of: FileOf) -> dict[str, Any]:
    """Return the repeats of `repeats: auto`: the pilot's blocks first. Nothing for a number, which is checked apart."""
    repeats, most = values.get("repeats"), values.get("repeats_most", FEWEST_BLOCKS)
    if not isinstance(repeats, str):
        return {}
    if repeats != "auto":
        raise InputError(f"repeats={repeats}: must be a number from 1 on, or auto; look in {file_of('repeats')}")
    if isinstance(most, int) and most < FEWEST_BLOCKS:
        raise InputError(
            f"repeats_most={most}: repeats=auto takes {FEWEST_BLOCKS} blocks at least, so that its intervals hold; "
            f"look in {file_of('repeats_most')}"
        )
    return {"repeats": PILOT, "auto_repeats": True}


def _refuse_unfit_site(site: Site, file_of: FileOf) -> None:
    """Raise InputError for settings that no job could be submitted with: rules for new plans, not for old files."""
    if site.probe and site.scheduler != "local":
        raise InputError(
            "site.probe=True: must be false where jobs go to a cluster: the machine that plans is not the one that "
            f"measures; look in {file_of('site.probe')}"
        )
    if site.kinds and site.inventory:
        raise InputError(
            "site.inventory and site.kinds are both given: where a site has several kinds of node, each has its own "
            f"inventory; look in {file_of('site.inventory')}"
        )
    if site.kinds and site.scheduler == "local":
        raise InputError(
            "site.kinds: needs site.scheduler=slurm, or another engine: one machine is one kind of node; its devices "
            f"of several models stand in site.inventory; look in {file_of('site.kinds')}"
        )
    twice = [kind.name for kind in site.kinds if [other.name for other in site.kinds].count(kind.name) > 1]
    if twice:
        raise InputError(f"site.kinds: two kinds of node are called '{twice[0]}'; look in {file_of('site.kinds')}")
    refuse_unfit_slurm(site.slurm, "site.slurm", file_of)
    for number, kind in enumerate(site.kinds):
        where = f"site.kinds.{number}.slurm"
        if kind.slurm.head != site.slurm.head:
            raise InputError(
                f"{where}.head: the job of a head is the whole sweep's: state it as site.slurm.head; "
                f"look in {file_of(where)}"
            )
        refuse_unfit_slurm(kind.slurm, where, file_of)
    for words in (site.grid_engine, *(kind.grid_engine for kind in site.kinds)):
        if words is not None:
            refuse_unfit_grid_engine(words, file_of)

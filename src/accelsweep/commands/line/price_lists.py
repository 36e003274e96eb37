"""Price lists that are named on the command line: files, or the lists in `conf/prices` here and as shipped."""

from __future__ import annotations

from pathlib import Path

from accelsweep.base.errors import InputError, nearest
from accelsweep.base.shipped import config_folders
from accelsweep.core.planned.prices import Prices
from accelsweep.plan.refusals.wording import parsed


def read_prices(home: Path, given: str) -> Prices:
    """Return the prices of one or more lists, `cloud,bought`: files, or names in `conf/prices` here or as shipped.

    Where two lists have a price for one thing, that of the first counts. Raises InputError that names the nearest list.
    """
    lists = [_read(home, name.strip()) for name in given.split(",") if name.strip()]
    if not lists:
        raise InputError("--prices names no list: write a file, or a name in conf/prices such as cloud")
    return lists[0] if len(lists) == 1 else _together(lists)


def _together(lists: list[Prices]) -> Prices:
    found = Prices()
    for one in reversed(lists):
        found = Prices(
            devices=found.devices | one.devices,
            purchase=found.purchase | one.purchase,
            electricity=one.electricity or found.electricity,
            carbon=one.carbon or found.carbon,
        )
    return found


def _read(home: Path, given: str) -> Prices:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folders = [folder / "prices" for folder in config_folders(home)]
    places = [home / given, *(folder / f"{given}.yaml" for folder in folders)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
        there = f"neither a file of this name nor conf/prices/{given}.yaml is there; there are: {', '.join(known)}"
        raise InputError(f"no prices {given!r}{nearest(given, known)}: {there}")
    try:
        given_prices = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no YAML: {error}") from error
    return parsed(Prices, given_prices, "prices", lambda _key: str(path))

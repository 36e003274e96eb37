"""The kind of node that serves a cell, at a site that has several.

`accelerator=cuda:a100` names a kind of node, or a model among the site's devices. A plain `accelerator=cpu` goes to the
nodes that have nothing else, where the site has such nodes.
"""

from __future__ import annotations

from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.sites.device import Device
from accelsweep.core.sites.site import NodeKind, Site
from accelsweep.machine.naming import meant


def serving(config: CellConfig, site: Site) -> Site:
    """Return `site` as this cell sees it: with the nodes of its kind alone, and of devices the model that it names.

    Raises InputError where none of the site's kinds of node is meant, or several are.
    """
    if not site.kinds:
        return _of_model(config, site)
    kind = kind_for(config, site)
    named = config.device_model in (None, kind.name)
    own = site.of_kind(kind.name)
    return own if named else _of_model(config, own)


def kind_for(config: CellConfig, site: Site) -> NodeKind:
    """Return the kind of node of `site` that serves this cell; raise InputError where that is none, or not one."""
    having = [kind for kind in site.kinds if any(one.accelerator == config.accelerator for one in kind.inventory)]
    if (model := config.device_model) is None:
        fitting = [kind for kind in having if _nothing_else(kind, config.accelerator)] or having
    else:
        fitting = [kind for kind in site.kinds if kind.name == model] or [
            kind for kind in having if any(is_model(config, one) for one in kind.inventory)
        ]
    if len(fitting) == 1:
        return fitting[0]
    asked = config.accelerator if model is None else f"{config.accelerator}:{model}"
    if fitting:
        each = " or ".join(f"accelerator={config.accelerator}:{kind.name}" for kind in fitting)
        raise InputError(f"accelerator={asked}: the site '{site.name}' has several kinds of node for it; say {each}")
    names = [kind.name for kind in site.kinds]
    hint = "" if model is None else nearest(model, names)
    raise InputError(
        f"accelerator={asked}: the site '{site.name}' has no such kind of node{hint}; it has: {', '.join(names)}"
    )


def is_model(config: CellConfig, device: Device) -> bool:
    """Return whether the config's accelerator, and the model that it names if any, mean this device."""
    if device.accelerator != config.accelerator:
        return False
    return config.device_model is None or meant(config.device_model, device.model)


def models_for(config: CellConfig, site: Site) -> tuple[str, ...]:
    """Return the models of the devices that may run this cell; empty where its config names none, and any will do."""
    if config.device_model is None:
        return ()
    return tuple(one.model for one in serving(config, site).inventory if one.accelerator == config.accelerator)


def _of_model(config: CellConfig, site: Site) -> Site:
    """Return the site without devices of other models than the config names."""
    if config.device_model is None:
        return site
    kept = [one for one in site.inventory if one.accelerator != config.accelerator or is_model(config, one)]
    return site.model_copy(update={"inventory": tuple(kept)})


def _nothing_else(kind: NodeKind, accelerator: str) -> bool:
    return all(device.accelerator == accelerator for device in kind.inventory)

"""Meanings of config keys without a comment in `conf/`: keys in no shipped file, and names that many files share."""

from __future__ import annotations

import re

FURTHER = {
    "prices.carbon": "grams of CO2 emitted per kilowatt-hour: a number, or {grams_per_kwh, date, source}",
    "report.claims": "published figures to be tested (docs/claims.md)",
    "report.ladder": "the axis whose values are rungs",
    "site.grid_engine.interface": "the network interface between nodes",
    "site.kinds": "several kinds of node, instead of nodes and inventory (docs/slurm.md)",
}
"""Keys that a user may add, but that no shipped file contains."""

OURS = ("added_repeats", "auto_repeats", "until_decided", "decided_at")
"""Fields that planning itself fills in. They are not config keys."""

WORDS = {"accelerator": "auto, or KIND:MODEL", "batch_size": "auto", "repeats": "auto"}
"""Values that planning replaces by concrete ones, so the models of a plan do not accept them."""

_NAMED = {
    r"_target_": "the class or callable to instantiate",
    r"_partial_": "true: the run supplies the remaining arguments",
    r"prices\.(devices|purchase|electricity)": "the prices of this kind",
    r"prices\.(devices|purchase)\.[^.]+": "the price of a device, named by its model, board key or accelerator",
    r"usd_per_hour": "USD per hour of using the device",
    r"usd_per_kwh": "USD per kilowatt-hour",
    r"usd": "the purchase price of the device in USD",
    r"lifetime_years": "years over which the purchase price is spread",
    r"utilisation": "the share of all hours in which the device is in use",
    r"watts": "power drawn while the device is in use, in watts",
    r"date": "the date of the price",
    r"source": "the source of the price",
    r"auto_wrap_policy": "the policy that determines which parts of the model FSDP wraps and gathers separately",
    r"min_num_params": "the number of parameters from which a part is wrapped separately",
    r"block": "how runs are grouped into blocks",
    r"limits": "limits on runs, blocks and jobs",
    r"analysis": "the rules for verdicts",
}


def of_name(name: str) -> str:
    """Return the meaning of a dotted key whose name means the same everywhere, or an empty string."""
    last = name.rpartition(".")[2]
    return next((said for rule, said in _NAMED.items() if re.fullmatch(rule, name) or rule == last), "")

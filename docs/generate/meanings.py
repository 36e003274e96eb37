"""The meanings of config keys that no comment in `conf/` gives: keys in no shipped file, and names in many."""

from __future__ import annotations

import re

FURTHER = {
    "prices.carbon": "grams of CO2 that a kilowatt-hour costs: a number, or {grams_per_kwh, date, source}",
    "report.claims": "figures that others state, put to the test (docs/claims.md)",
    "report.ladder": "the axis whose values are rungs",
    "site.grid_engine.interface": "the network interface between nodes",
    "site.kinds": "several kinds of node, in place of nodes and inventory (docs/slurm.md)",
}
"""Keys that a user may add, and no shipped file has."""

OURS = ("added_repeats", "auto_repeats", "until_decided", "decided_at")
"""Fields of a plan that its maker fills in. They are no keys of a config."""

WORDS = {"accelerator": "auto, or KIND:MODEL", "batch_size": "auto", "repeats": "auto"}
"""Values that stand for others until the plan is made, so that the models of a plan do not know them."""

_NAMED = {
    r"_target_": "the class, or the callable",
    r"_partial_": "true: the rest of its arguments comes from the run",
    r"prices\.(devices|purchase|electricity)": "prices of this kind",
    r"prices\.(devices|purchase)\.[^.]+": "a device's model, a board's key, or an accelerator",
    r"usd_per_hour": "USD for an hour of the device",
    r"usd_per_kwh": "USD for a kilowatt-hour",
    r"usd": "USD for the device",
    r"lifetime_years": "years over which its price is spread",
    r"utilisation": "the share of all hours in which it works",
    r"watts": "drawn while it works",
    r"date": "of the price",
    r"source": "of the price",
    r"auto_wrap_policy": "the rule by which parts of the model are gathered one by one",
    r"min_num_params": "the parameters from which on a part is gathered by itself",
    r"block": "how runs are cut into blocks",
    r"limits": "bounds on runs, blocks and jobs",
    r"analysis": "the rules of verdicts",
}


def of_name(name: str) -> str:
    """Return the meaning of a dotted key that has the same one wherever it stands; an empty text for others."""
    last = name.rpartition(".")[2]
    return next((said for rule, said in _NAMED.items() if re.fullmatch(rule, name) or rule == last), "")

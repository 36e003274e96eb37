"""A config file that nobody should write is refused by name, however its values are made."""

from __future__ import annotations

import pytest

from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan

EXPERIMENT = "# @package _global_\naccelerator: cpu\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1: 2\n", "unknown key '1'"),
        ("note: " + "[" * 400 + "]" * 400 + "\n", "nested too deeply"),
        ("note: " + "{a: " * 400 + "1" + "}" * 400 + "\n", "nested too deeply"),
    ],
    ids=["a number as key", "lists in lists", "mappings in mappings"],
)
def test_an_odd_config_is_refused_by_name(home, own_conf, line, words):
    own_conf({"experiment/mine.yaml": EXPERIMENT + line})
    with pytest.raises(InputError, match=words):
        make_plan(home, ["experiment=mine"])

"""The packages missing on a machine are found by walking the requirements."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pack
from packaging.utils import canonicalize_name
from wheels import HERE, missing

PRESENT = frozenset(map(canonicalize_name, (HERE / "present.txt").read_text("utf-8").split()))


def test_a_requirement_of_a_requirement_is_missing_too():
    assert {"hydra-core", "antlr4-python3-runtime", "snakemake", "dpath"} <= missing(PRESENT, "3.12")


def test_what_the_machine_has_is_not_carried_and_neither_is_what_only_that_needs():
    found = missing(PRESENT, "3.12")
    assert not found & PRESENT
    assert "hydra-core" not in missing(PRESENT | {"hydra-core"}, "3.12")


def test_mlflow_stays_out_with_what_only_it_needs():
    assert not missing(PRESENT, "3.12") & {"mlflow", "alembic", "databricks-sdk"}


def test_the_shell_that_starts_it_is_short_enough_for_a_machine_that_takes_2000_characters():
    assert len(pack.STARTER.format(name="carried")) < 2000


def test_what_is_carried_says_what_accelsweep_needs_although_nobody_installs_it(tmp_path: Path):
    """Planning reads it: without it the acceptance would end at its first sweep on a bare machine."""
    pack.named(tmp_path)
    (found,) = metadata.distributions(path=[str(tmp_path)])
    assert found.name == "accelsweep"
    assert any(line.startswith("torch") for line in found.requires or [])

"""The storm on a real Slurm: faults of drivers, jobs, daemons and files, and the same command completes the sweep.

`make storm WHERE=slurm SEEDS=0-199` draws other cases. Each is made again by its number alone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_grammar import slurm_case_of
from slurm_storm import SlurmStorm
from storm import Place, asked_seeds, weather

pytestmark = [pytest.mark.slurm, pytest.mark.storm, pytest.mark.timeout(1200)]

SEEDS = range(10)
"""They are long because a case takes up to two minutes. tests/slurm meets single faults, the local storm all others."""


@pytest.mark.parametrize("seed", asked_seeds(SEEDS))
@pytest.mark.usefixtures("cluster")
def test_the_same_command_completes_a_sweep_on_slurm_through_any_faults(
    tmp_path: Path, empty_database: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    place = Place(tmp_path, Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp")), {})
    shutil.copy(empty_database, place.empty_database)
    try:
        weather(SlurmStorm(place, slurm_case_of(seed)), tmp_path / "failed", record_property)
    finally:
        shutil.rmtree(place.temporary, ignore_errors=True)

"""Fixtures of the features' tests: a working directory to plan in, a rank to run, and the findings of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from planning_fixtures import home, own_conf, plan_of, two_cores  # noqa: F401 - fixtures

from accelsweep.records.findings import Findings


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Run a single rank in this process and return its result."""
    from one_rank import make_spec, place_of_a_rank

    from accelsweep.records.run_files import read_rank_result
    from accelsweep.results import RankResult
    from accelsweep.worker.main import run_rank

    def run_one(**changes: Any) -> RankResult:
        spec = make_spec(tmp_path, ceilings=tmp_path / "ceilings.json", **changes)
        run_rank(spec)
        return read_rank_result(spec.rank_result(0))

    with place_of_a_rank(tmp_path):
        yield run_one


@pytest.fixture
def findings() -> Findings:
    """The findings of a simulated sweep of two settings, without any section."""
    from simulated_sweep import make_manifest, make_run

    from accelsweep.analysis.analyse_sweep import analyse

    settings = [{"batch_size": 8}, {"batch_size": 64}]
    runs = [make_run(axes, block, 10.0 * axes["batch_size"] + block) for block in range(3) for axes in settings]
    return analyse(runs, make_manifest(settings, 3)).model_copy(update={"sections": {}})

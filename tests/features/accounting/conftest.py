"""A simulated sweep in memory, and its findings."""

import pytest
import simulated_sweep
from shared_fixtures import simulated  # noqa: F401

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.records.findings import Findings


@pytest.fixture
def findings() -> Findings:
    settings = [{"batch_size": 8}, {"batch_size": 64}]
    runs = [
        simulated_sweep.make_run(axes, block, 10.0 * axes["batch_size"] + block)
        for block in range(3)
        for axes in settings
    ]
    return analyse(runs, simulated_sweep.make_manifest(settings, 3))

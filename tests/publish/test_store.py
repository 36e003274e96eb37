"""The file of a SQLite store is made once, also beside somebody else who makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import until

from accelsweep.publish.store.store import create_database

pytestmark = pytest.mark.real

OWN_LOGGER = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("own")
"""


def test_a_store_that_a_run_makes_itself_is_waited_for(tmp_path: Path) -> None:
    """MLflow's lock holds for equal addresses only, and that of a run's logger is a relative one."""
    from mlflow import MlflowClient

    store = tmp_path / "mlflow.db"
    with subprocess.Popen([sys.executable, "-c", OWN_LOGGER], cwd=tmp_path) as run:
        until(store.exists)
        create_database(f"sqlite:///{store}", tmp_path)
        found = MlflowClient(f"sqlite:///{store}").search_experiments()
        assert "Default" in {one.name for one in found}
    assert run.returncode == 0

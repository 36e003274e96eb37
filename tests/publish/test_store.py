"""The file of a SQLite store is made once, also beside somebody else who makes it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from patience import until

from accelsweep.tracking.store import create_database

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


def test_a_new_database_is_open_to_whom_the_umask_opens_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        create_database(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mlflow.db").stat().st_mode) == 0o664


def test_what_is_said_to_be_in_the_store_is_written_at_once_whatever_the_variables_say() -> None:
    asked = "import accelsweep.tracking.mlflow_settings, os; print(os.environ['MLFLOW_ENABLE_ASYNC_LOGGING'])"
    environment = {**os.environ, "MLFLOW_ENABLE_ASYNC_LOGGING": "true"}
    told = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "false"

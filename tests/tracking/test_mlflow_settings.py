"""Our environment variables are set before mlflow is imported, and only where it is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep import tracking

IMPORT = re.compile(r"^\s*(import|from) mlflow\b", re.MULTILINE)
MODULES = [path for path in sorted(Path(tracking.__file__).parent.rglob("*.py")) if IMPORT.search(path.read_text())]


def output_of(code: str, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_that_imports_mlflow_imports_the_settings_first(module: Path) -> None:
    text = module.read_text()
    mlflow = IMPORT.search(text)
    assert mlflow is not None
    assert 0 <= text.find("import accelsweep.tracking.mlflow_settings") < mlflow.start()


def test_checking_whether_a_copy_is_complete_changes_no_variable() -> None:
    code = (
        "import os; before = dict(os.environ); import accelsweep.driver.up_to_date; print(before == dict(os.environ))"
    )
    assert output_of(code) == "True\n"


def test_asynchronous_logging_is_off_whatever_the_user_sets() -> None:
    code = "import accelsweep.tracking.mlflow_settings, os; print(os.environ['MLFLOW_ENABLE_ASYNC_LOGGING'])"
    assert output_of(code, MLFLOW_ENABLE_ASYNC_LOGGING="true") == "false\n"

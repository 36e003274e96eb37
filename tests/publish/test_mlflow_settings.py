"""MLflow reads settings of ours when it is imported, and processes that do not import it keep their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep import tracking

IMPORT = re.compile(r"^\s*(import|from) mlflow\b", re.MULTILINE)
PACKAGE = Path(tracking.__file__).parent
IMPORTING = [path for path in sorted(PACKAGE.rglob("*.py")) if IMPORT.search(path.read_text())]


@pytest.mark.parametrize("module", IMPORTING, ids=lambda path: path.stem)
def test_a_module_that_imports_mlflow_makes_the_settings_first(module: Path) -> None:
    text = module.read_text()
    found = IMPORT.search(text)
    assert found is not None
    assert 0 <= text.find("import accelsweep.tracking.mlflow_settings") < found.start()


def test_asking_whether_a_copy_is_complete_sets_nothing() -> None:
    code = (
        "import os; before = dict(os.environ); import accelsweep.driver.up_to_date; print(dict(os.environ) == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"

"""`doctor` says whether a training script can be measured, by whom, and where the axes go."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment
from projects import copy_project

from accelsweep.cli.doctor import examine, examine_project

pytestmark = pytest.mark.heavy  # torch is imported in processes of their own


@pytest.fixture(autouse=True)
def _no_environment_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def test_a_hydra_project_is_shown_with_the_keys_that_the_axes_go_to_and_their_values(tmp_path: Path):
    found = {check.what: check.found for check in examine_project(copy_project("hydra_template", tmp_path), None)}
    assert found["training script"] == "python src/train.py, found in the sources; uses Hydra"
    assert found["its interpreter"].endswith(", accelsweep's own")
    assert found["its versions"].startswith("Python 3.")
    assert found["axis accelerator"] == "trainer.accelerator, now cpu"
    assert found["axis batch_size"] == "data.batch_size, now 128"
    assert found["axis precision"] == "trainer.precision"
    assert found["quality"] == "val/acc (max is better)"


def test_a_script_that_builds_its_trainer_in_code_is_shown_with_what_is_replaced(tmp_path: Path):
    home = copy_project("script", tmp_path)
    python = environment(home / "env", "extra")
    checks = {check.what: check for check in examine_project(home, f"{python} train.py --hidden 8")}
    assert checks["training script"].found == "python train.py --hidden 8, named by --entry; takes options"
    assert checks["its interpreter"].found == python
    assert "torch 2." in checks["its versions"].found
    assert checks["its devices"].found.startswith("cpu: 1 x ")
    assert checks["axis devices"].found == "replaces the Trainer's argument"
    assert checks["axis batch_size"].found == "--batch-size, now 32"
    assert "quality=METRIC" in str(checks["quality"].remedy)


def test_what_prevents_measuring_is_named_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    home = copy_project("script", tmp_path)
    (home / "train.py").write_text((home / "train.py").read_text().replace('"--batch-size"', '"--rows"'))
    assert examine(home) == 2
    assert "FAIL axis batch_size: cannot tell which argument of train.py sets batch_size" in capsys.readouterr().out
    environment(home / ".venv", None, shares=False)
    assert examine(home, as_json=True) == 2
    assert "has no torch: install it there" in capsys.readouterr().out
    assert examine(tmp_path, entry="python absent.py") == 2
    assert "there is no Python script absent.py" in capsys.readouterr().out

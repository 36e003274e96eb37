"""An environment in which a training script cannot be measured is refused by a plan, with what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment
from projects import copy_project

from accelsweep.errors import InputError
from accelsweep.planning.interpreter import query_interpreter, refuse_unsuitable
from accelsweep.planning.plan import make_plan

TORCH = ("2.4.0", "")
LIGHTNING = ("2.2.0", "import sys; sys.modules['lightning.pytorch'] = sys.modules[__name__]")
BROKEN_LIBRARY = "import ctypes; ctypes.CDLL('libcudart.so.0')"
OTHER_MACHINE = """
from importlib.machinery import ExtensionFileLoader, ModuleSpec
loader = ExtensionFileLoader('_C', __file__)
loader.create_module(ModuleSpec('_C', loader, origin=__file__))
"""
OTHER_PROCESSOR = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
NO_OPERATOR = "raise RuntimeError('operator torchvision::nms does not exist')"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "has no torch: install it there"),
        ({"torch": ("1.13.1", ""), "lightning": LIGHTNING}, "has torch 1.13.1, but measuring requires 2.1 or later"),
        ({"torch": TORCH}, "has no lightning: install it there"),
        ({"torch": TORCH, "lightning": ("1.9.5", "")}, "has lightning 1.9.5, but measuring requires 2.0 or later"),
        (
            {"torch": ("2.4.0", BROKEN_LIBRARY), "lightning": LIGHTNING},
            r"cannot import torch \(OSError: libcudart.so.0: cannot open .*\): reinstall torch there for this machine",
        ),
        (
            {"torch": ("2.4.0", OTHER_MACHINE), "lightning": LIGHTNING},
            r"cannot import torch \(ImportError: .*\): reinstall torch there for this machine",
        ),
        (
            {"torch": ("2.4.0", OTHER_PROCESSOR), "lightning": LIGHTNING},
            "cannot import torch and lightning: it was ended by SIGILL: reinstall torch there for this machine",
        ),
        (
            {"torch": TORCH, "lightning": ("2.2.0", "import torchvision"), "torchvision": ("0.15", NO_OPERATOR)},
            r"cannot import lightning.pytorch \(RuntimeError: operator torchvision::nms does not exist\): "
            "install a version of torchvision there that fits the installed torch",
        ),
    ],
    ids=["no torch", "old torch", "no lightning", "old lightning", "library", "machine", "processor", "torchvision"],
)
@pytest.mark.parametrize("project", ["script", "hydra_template"])
def test_an_environment_that_cannot_run_the_script_is_refused(tmp_path: Path, project, modules, message):
    home = copy_project(project, tmp_path / "home")
    python = environment(home / ".venv", None, shares=False, **modules)
    with pytest.raises(InputError, match=message) as error:
        make_plan(home, ["batch_size=32,64"])
    assert python in str(error.value)
    assert "name another interpreter under `python` in accelsweep.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("python", "torch", "refused"), [("3.9.2", "2.1.0", True), ("3.10.0", "2.1.0a0+32f93b1", False)]
)
def test_versions_before_a_release_count_as_that_release(python, torch, refused):
    software = {"python": python, "torch": torch, "pytorch-lightning": "2.0.9.post0"}
    if refused:
        with pytest.raises(InputError, match=r"has Python 3.9.2, but measuring requires 3.10 or later: name another"):
            refuse_unsuitable("/p", software, "pytorch-lightning")
    else:
        refuse_unsuitable("/p", software, "pytorch-lightning")


@pytest.mark.heavy
def test_a_module_that_the_script_lacks_is_to_be_installed_in_the_interpreter_that_ran_it(tmp_path: Path):
    home = copy_project("hydra_template", tmp_path)
    script = home / "src" / "train.py"
    script.write_text(script.read_text().replace("import hydra\n", "import hydra\nimport rootutils_of_theirs\n"))
    python = environment(home / ".venv", "extra")
    remedy = rf"'rootutils_of_theirs' \(.*train.py, line 8\): install it in {python}, or name another interpreter"
    with pytest.raises(InputError, match=remedy):
        make_plan(home, ["batch_size=32,64"])


@pytest.mark.heavy
def test_torchs_version_includes_its_build_even_if_its_metadata_does_not(tmp_path: Path):
    python = Path(environment(tmp_path, None, shares=False, torch=TORCH))
    (next(tmp_path.glob("lib/python*/site-packages")) / "torch" / "version.py").write_text(
        "__version__ = '2.4.0+cu121'\n"
    )
    assert query_interpreter(python, "it")[1]["torch"] == "2.4.0+cu121"

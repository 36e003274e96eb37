"""A class that is not there, and a module in another one's place, are found while planning; nothing is imported."""

from __future__ import annotations

import pytest

from accelsweep.base.errors import InputError
from accelsweep.plan.make import make_plan

MODS = """
raise SystemExit('imported!')
import torch
class Net(torch.nn.Module):
    class Inner:
        pass
def make(): pass
if True:
    try:
        Late = Net
    except NameError:
        from elsewhere import Other as Late
"""


def plan(home, *overrides):
    return make_plan(home, ["accelerator=cpu", "optimizer.lr=1", *overrides])


@pytest.fixture
def mods(tmp_path):
    (tmp_path / "mods.py").write_text(MODS)
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("from . import net\nfrom .net import shadowed\n")
    (pack / "net.py").write_text("class Net: pass\ndef shadowed(): pass\n")
    (pack / "shadowed.py").write_text("")
    (pack / "lazy.py").write_text("def __getattr__(name): ...\n")
    (pack / "star.py").write_text("from .net import *\n")
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [
        *("mods.Net", "mods.make", "mods.Late", "mods.Net.Inner", "mods.torch.nn.Linear"),
        *("pack.net.Net", "pack.shadowed", "pack.lazy.Anything", "pack.star.Net"),
        *("torch.nn.Linear", "collections.OrderedDict", "builtins.dict"),
    ],
)
def test_what_a_source_binds_or_may_bind_is_planned(target, mods):
    assert plan(mods, f"model._target_={target}").cells


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("mods.Nett", r"mods.py has no 'Nett' \(did you mean 'Net'\?\)"),
        ("pack.net.Nett", r"net.py has no 'Nett'"),
        ("pack.nett.Net", r"__init__.py has no 'nett'"),
        ("mods", "this is a module, not a class"),
        ("pack.net", "this is a module, not a class"),
        ("torch.nn", "this is a module, not a class"),
        ("null", "model._target_=null: this names no class"),
        ("3", "model._target_=3: this names no class"),
        ("'mods:Net'", "this names no class"),
    ],
)
def test_what_no_run_would_find_is_refused_while_planning(target, said, mods):
    with pytest.raises(InputError, match=said) as told:
        plan(mods, f"model._target_={target}")
    assert "`_target_` is package.module.Class" in str(told.value)


def test_a_class_that_is_missing_below_the_data_is_named_by_its_key(mods):
    with pytest.raises(InputError, match=r"data.train._target_=mods.Sett: .*mods.py has no 'Sett'"):
        plan(mods, "data=dataset", "data.train._target_=mods.Sett")


@pytest.mark.parametrize(
    "name",
    [
        *("lightning.py", "queue.py", "accelsweep/__init__.py", "hydra.py", "torch/__init__.py"),
        *("profile.py", "requests.py", "click.py", "matplotlib.py", "networkx/__init__.py", "statistics.py", "PIL.py"),
    ],
)
def test_a_module_in_the_place_of_one_that_every_run_imports_is_refused(name, tmp_path, last_line):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(
        InputError, match=f"{name.removesuffix('/__init__.py')} has the name of a module that every run"
    ) as told:
        plan(tmp_path)
    last_line(f"{name} beside the model", str(told.value))


def test_a_folder_that_is_no_package_and_a_name_that_nobody_imports_are_fine(tmp_path):
    fine = (
        "torch/data.csv",
        "queue/readme.md",
        "test/__init__.py",
        "mine.py",
        "tests/__init__.py",
        "utils.py",
        "data.py",
    )
    for name in (*fine, "requests/notes.txt", "example.py", "models/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert plan(tmp_path).cells

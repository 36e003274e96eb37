"""Missing classes, wrong arguments and shadowed modules are reported while planning, without importing anything."""

from __future__ import annotations

from collections import Counter

import pytest
from hydra._internal.config_repository import CachingConfigRepository

from accelsweep.errors import InputError
from accelsweep.planning import checked_grid, user_class_check
from accelsweep.planning.plan import make_plan

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
def test_names_that_a_module_binds_or_may_bind_are_accepted(target, mods):
    assert plan(mods, f"model._target_={target}").settings


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mods.Nett", r"mods.py has no 'Nett' \(did you mean 'Net'\?\)"),
        ("pack.net.Nett", r"net.py has no 'Nett'"),
        ("pack.nett.Net", r"__init__.py has no 'nett'"),
        ("mods", "this is a module, not a class"),
        ("pack.net", "this is a module, not a class"),
        ("torch.nn", "this is a module, not a class"),
        ("null", "model._target_=null: not the name of a class"),
        ("3", "model._target_=3: not the name of a class"),
        ("'mods:Net'", "not the name of a class"),
    ],
)
def test_targets_that_no_run_would_find_are_refused(target, message, mods):
    with pytest.raises(InputError, match=message) as caught:
        plan(mods, f"model._target_={target}")
    assert "`_target_` is package.module.Class" in str(caught.value)


def test_a_missing_nested_class_is_reported_by_its_key(mods):
    with pytest.raises(InputError, match=r"data.train._target_=mods.Sett: .*mods.py has no 'Sett'"):
        plan(mods, "data=dataset", "data.train._target_=mods.Sett")


TAKES = """
import torch
from typing import Unpack, TypedDict
from bases import Base, imported as handed_on
import bases as other
from bases import Keys

class Plain(torch.nn.Module):
    def __init__(self, net, width=4, *, depth=1, name): ...

class Same(Plain):
    training = True
    def forward(self, x): ...

class Other(other.Base): pass
class Imported(Base): pass
class Handed(torch.nn.Module):
    def __init__(self, net, **keys: Unpack[Keys]): ...
class AnyName(torch.nn.Module):
    def __init__(self, net, **rest): ...
class None_: ...

def made(net, width=1): ...

class OfTorch(torch.nn.Module): ...
class Two(Plain, other.Base): ...
class Meta(metaclass=type):
    def __init__(self, net): ...
@other.decorated
class Decorated:
    def __init__(self, net): ...
class Wrapped:
    @other.decorated
    def __init__(self, net): ...
class New:
    def __new__(cls, *args): ...
class Late(torch.nn.Module):
    if torch.cuda:
        def __init__(self, net): ...
if torch.cuda:
    class Twice: ...
else:
    class Twice:
        def __init__(self, net): ...
"""
BASES = """
from typing import TypedDict
class Base:
    def __init__(self, net, vv=1): ...
class Keys(TypedDict, total=False):
    vv: int
def decorated(x): return lambda *a, **k: x
def imported(net, vv=1): ...
"""


@pytest.fixture
def takes(tmp_path):
    (tmp_path / "takes.py").write_text(f"raise SystemExit('imported!')\n{TAKES}")
    (tmp_path / "bases.py").write_text(BASES)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("takes.Plain model.net=1 model.name=a model.vv=1,2", "model.vv: takes.Plain has no such argument; it"),
        ("takes.Plain model.net=1 model.name=a model.widht=2", r"model.widht: .*\(did you mean 'width'\?\)"),
        ("takes.Plain model.name=a", r"model: takes.Plain requires net: set \+model.net=VALUE"),
        ("takes.Plain model.net=1", "takes.Plain requires name"),
        ("takes.Same model.net=1 model.name=a model.vv=1", "model.vv: takes.Same has no such argument"),
        ("takes.Other", "takes.Other requires net"),
        ("takes.Imported model.net=1 model.v=1", r"model.v: takes.Imported .*\(did you mean 'vv'\?\)"),
        ("takes.Handed model.net=1 model.v=1", r"model.v: takes.Handed .*; it accepts net, vv"),
        ("takes.AnyName model.vv=1", "takes.AnyName requires net"),
        ("takes.None_ model.net=1", "model.net: takes.None_ has no such argument; it accepts none"),
        ("takes.made model.vv=1", "model.vv: takes.made has no such argument"),
        ("takes.handed_on", "takes.handed_on requires net"),
        ("accelsweep.workloads.image_models.SmalCNN", r"models.py has no 'SmalCNN' \(did you mean 'SmallCNN'\?\)"),
        ("accelsweep.workloads.model.SmallCNN", "has no 'model'"),
        ("accelsweep.workloads.image_models.SmallCNN model.widht=8", "model.widht: .*did you mean 'width'"),
    ],
)  # fmt: skip
def test_wrong_and_missing_arguments_are_refused(given, message, takes, last_line):
    with pytest.raises(InputError, match=message) as caught:
        plan(takes, *f"model._target_={given}".split(" "))
    last_line(f"model._target_={given}", str(caught.value))


UNCERTAIN = ("OfTorch", "Two", "Meta", "Decorated", "Wrapped", "New", "Late", "Twice")


@pytest.mark.parametrize(
    "given",
    [
        *("takes.Plain model.net=1 model.name=a model.depth=1,2", "takes.Handed model.net=1 model.vv=1"),
        *("takes.AnyName model.net=1 model.vv=1", "takes.None_", "takes.made model.net=1", "takes.Other model.net=1"),
        *(f"takes.{name} model.vv=1" for name in UNCERTAIN),
        "takes.Plain model._args_=[1] model.name=a",
    ],
)  # fmt: skip
def test_arguments_that_a_class_takes_or_may_take_are_accepted(given, takes):
    assert plan(takes, *f"model._target_={given}".split(" ")).settings


@pytest.mark.parametrize("inner", ["torch.optim.Adam", "takes.made", "torch.optim.lr_scheduler.StepLR"])
def test_partial_is_suggested_for_a_nested_class_that_its_owner_completes(inner, takes, last_line):
    own = ["model._target_=takes.AnyName", "model.net=1", f"+model.inner._target_={inner}"]
    with pytest.raises(InputError, match=r"model.inner: .*if takes.AnyName passes it itself, add ") as caught:
        plan(takes, *own)
    assert "model.inner._partial_=true (`_partial_: true` in a file)" in str(caught.value)
    last_line("nested `_target_` without `_partial_`", str(caught.value))
    assert plan(takes, *own, "+model.inner._partial_=true").settings
    assert plan(takes, *own, "+model._recursive_=false").settings


def test_arguments_that_accelsweep_adds_are_not_missing(takes):
    (takes / "sets.py").write_text("class Data:\n    def __init__(self, batch_size, seed, device, net): ...\n")
    with pytest.raises(InputError, match=r"sets\.Data requires net"):
        plan(takes, "data._target_=sets.Data")
    assert plan(takes, "data._target_=sets.Data", "data.net=1").settings
    (takes / "attribute.py").write_text("class Data:\n    def __init__(self): self.batch_size = 1\n")
    assert plan(takes, "data._target_=attribute.Data", "data.batch_size=64", "devices=2").settings


def test_arguments_of_callbacks_and_optimizers_are_checked_too(takes):
    with pytest.raises(InputError, match=r"trainer.callbacks.0.vv: takes.made has no such argument"):
        plan(takes, "+trainer.callbacks=[{_target_: takes.made, net: 1, vv: 2}]")
    with pytest.raises(InputError, match=r"optimizer\.vv: takes.made has no such argument"):
        plan(takes, "optimizer=own", "optimizer._target_=takes.made", "optimizer.vv=1", "~optimizer.lr")


@pytest.mark.parametrize(
    "name",
    [
        *("lightning.py", "queue.py", "accelsweep/__init__.py", "hydra.py", "torch/__init__.py"),
        *("profile.py", "requests.py", "click.py", "matplotlib.py", "networkx/__init__.py", "statistics.py", "PIL.py"),
    ],
)
def test_a_module_that_shadows_one_of_every_run_is_refused(name, tmp_path, last_line):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(
        InputError, match=f"{name.removesuffix('/__init__.py')} has the name of a module that every run"
    ) as caught:
        plan(tmp_path)
    last_line(f"{name} beside the model", str(caught.value))


def test_folders_without_a_package_and_unused_names_are_accepted(tmp_path):
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
    assert plan(tmp_path).settings


@pytest.fixture
def look_ups(monkeypatch):
    """Counts look-ups of class sources, of Hydra's folders, and of the file that defines a key."""
    counts = Counter()

    def counted(owner, name):
        real = getattr(owner, name)

        def count(*arguments, **options):
            counts[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, count)

    counted(user_class_check, "_look_up")
    counted(CachingConfigRepository, "group_exists")
    counted(checked_grid, "defining_file")
    return counts


def count_look_ups(home, look_ups, settings):
    look_ups.clear()
    given = [f"batch_size=range(1,{settings // 4 + 1})", "model=mlp,small_cnn", "precision=32-true,bf16-mixed"]
    assert len(make_plan(home, ["accelerator=cpu", *given]).settings) == settings
    return dict(look_ups)


def test_the_number_of_look_ups_does_not_grow_with_the_grid(home, look_ups):
    (home / "conf").mkdir()  # a conf/ folder keeps the compositions cached by other tests out
    few, many = count_look_ups(home, look_ups, 8), count_look_ups(home, look_ups, 160)
    assert few == many
    assert set(few) == {"_look_up", "group_exists", "defining_file"}

"""A large grid has few keys and few classes: files are read once for each of those, and not for every setting."""

from __future__ import annotations

from collections import Counter

import pytest
from hydra._internal.config_repository import CachingConfigRepository

from accelsweep.planning import checked_grid, target_check
from accelsweep.planning.plan import make_plan


@pytest.fixture
def looked_up(monkeypatch):
    """How often a class's source, Hydra's folders, and the file that defines a key were looked for."""
    counts = Counter()

    def counted(owner, name):
        real = getattr(owner, name)

        def count(*arguments, **options):
            counts[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, count)

    counted(target_check, "_look_up")
    counted(CachingConfigRepository, "group_exists")
    counted(checked_grid, "defining_file")
    return counts


def looks(home, looked_up, settings):
    looked_up.clear()
    given = [f"batch_size=range(1,{settings // 4 + 1})", "model=mlp,small_cnn", "precision=32-true,bf16-mixed"]
    assert len(make_plan(home, ["accelerator=cpu", *given]).settings) == settings
    return dict(looked_up)


def test_twenty_times_as_many_settings_are_planned_with_as_many_look_ups(home, looked_up):
    (home / "conf").mkdir()  # with a folder of the user's own, no composition of another test is taken
    few, many = looks(home, looked_up, 8), looks(home, looked_up, 160)
    assert few == many
    assert set(few) == {"_look_up", "group_exists", "defining_file"}

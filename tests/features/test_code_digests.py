"""A feature's code is part of what a setting of it measures: where that changed, the setting is measured anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_sweep import config_with

from accelsweep import registry, tasks
from accelsweep.planning import source_digests
from accelsweep.planning.source_digests import ImportPath, measured_targets
from accelsweep.run_config import SettingConfig

MODELS = {
    "boosting": {"model": {"_target_": "accelsweep.features.boosting.boosters.XGBoost"}, "task": "boosting"},
    "distillation": {"model": {"_target_": "accelsweep.features.distillation.distillation.Distillation"}},
    "kernels": {"model": {"_target_": "accelsweep.features.kernels.kernels.Matmul"}, "task": "kernels"},
    "serving": {"task": "inference", "measure": {"scenario": "server"}, "serving": {"latency_ms": 10}},
}
"""Feature with code that runs measure -> the keys of a setting that it measures."""


def setting_of(feature: str) -> SettingConfig:
    return config_with(**MODELS[feature])


def digests(config: SettingConfig, home: Path) -> dict[str, str]:
    return source_digests.source_digests(measured_targets(config), ImportPath.of_home(home))


def test_each_feature_with_a_task_is_tested_here() -> None:
    assert {feature.name for feature in registry.features() if feature.tasks} <= MODELS.keys()


@pytest.mark.parametrize("feature", MODELS)
def test_a_changed_feature_changes_the_digests_of_its_settings_and_of_no_others(
    feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(registry.__file__).parent
    for folder in ("workloads", "features"):
        shutil.copytree(source / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "data"))
    monkeypatch.setattr(source_digests, "WORKLOADS", tmp_path / "workloads")
    before = {name: digests(setting_of(name), tmp_path) for name in MODELS}
    (tmp_path / "features" / feature / "more.py").write_text("SLOWER = True\n")
    changed = {name for name in MODELS if digests(setting_of(name), tmp_path) != before[name]}
    assert changed == {feature}


@pytest.fixture
def features_may_change(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget, before and after the test, the tasks that were looked up."""
    for cached in (tasks.tasks, tasks._tasks_named):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (tasks.tasks, tasks._tasks_named):
        cached.cache_clear()


@pytest.mark.usefixtures("features_may_change")
def test_a_changed_task_of_another_package_changes_the_digests_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = registry.Task("sorting", "sorting", "sorting_task.tasks:Sorting", rates=("samples_per_second",))
    known = (*registry.features(), registry.Feature("sorting", tasks=(task,)))
    monkeypatch.setattr(registry, "features", lambda: known)
    package = tmp_path / "sorting_task"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text("STEPS = 1\n")
    before = digests(config_with(task="sorting"), tmp_path)
    (package / "tasks.py").write_text("STEPS = 2\n")
    after = digests(config_with(task="sorting"), tmp_path)
    assert {name for name in after if after[name] != before[name]} == {"sorting_task"}

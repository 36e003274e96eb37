"""The shipped configs compose, are complete, and agree with the code."""

from pathlib import Path

import pytest
import yaml

from accelsweep import registry
from accelsweep.config.schema import MODELS
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.config.sweep_options import Analysis, BlockOptions, Limits, Options
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import make_plan
from accelsweep.run_config import SettingConfig

pytestmark = pytest.mark.exhaustive

CONF = shipped_root() / "conf"
OVERLAYS = {"experiment", "rung", "dlbench", "workload", "small_set"}
"""Groups whose files lie over the whole config and are no key of it."""


GIVEN_BY_THE_USER = {
    ("model", "own"): ["model._target_=torch.nn.Identity"],
    ("model", "supervised"): ["model.network._target_=torch.nn.Identity"],
    ("optimizer", "own"): ["optimizer._target_=torch.optim.RMSprop"],
    ("data", "own"): ["data._target_=torch.nn.Identity"],
    ("data", "dataset"): ["data.train._target_=torch.nn.Identity"],
    **{("model", f"kernel_{name}"): ["task=kernels"] for name in ("copy", "elementwise", "matmul")},
    **{
        ("model", library): ["task=boosting", "measure=boosting"]
        for library in ("xgboost", "lightgbm", "hist_gradient_boosting")
    },
}
"""What choices that hold the user's own code leave open, with any class that can be found; and the task of others."""


def files(group):
    return sorted(path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).rglob("*.yaml"))


def test_the_top_level_file_is_a_defaults_list_only():
    assert set(yaml.safe_load((CONF / "config.yaml").read_text())) == {"defaults"}


def test_every_known_key_has_its_default_in_one_place():
    base = set(yaml.safe_load((CONF / "base.yaml").read_text()))
    groups = {path.name for path in CONF.iterdir() if path.is_dir()} - OVERLAYS
    assert base & groups <= {"prices"}
    of_features = {key for model in registry.config_models("") for key in model.model_fields}
    # planning adds `entry`, for the user's own training script
    assert base | groups == (set(MODELS[SettingConfig].model_fields) - {"entry"}) | PLAN_KEYS | of_features


def test_the_defaults_in_the_files_are_those_in_the_code():
    base = yaml.safe_load((CONF / "base.yaml").read_text())
    assert Limits.model_validate(base["limits"]) == Limits()
    assert Analysis.model_validate(base["analysis"]) == Analysis()
    assert BlockOptions.model_validate(base["block"]) == BlockOptions()
    assert base["repeats"] == Options().repeats


# test_shipped_claims plans each claim, on two sites
@pytest.mark.parametrize("name", [name for name in files("experiment") if not name.startswith("claims/")])
def test_every_experiment_without_claims_can_be_planned(home, name):
    assert make_plan(home, [f"experiment={name}"]).manifest.settings


@pytest.mark.parametrize("name", files("site"))
def test_every_site_can_be_planned_for_without_probing_it(home, name):
    assert make_plan(home, [f"site={name}", "accelerator=auto"]).settings[0].unsupported is None


@pytest.mark.parametrize(
    ("group", "name"), [(g, n) for g in ("model", "data", "optimizer", "trainer", "measure") for n in files(g)]
)
def test_every_choice_of_every_group_can_be_planned(home, group, name):
    assert make_plan(home, [f"{group}={name}", *GIVEN_BY_THE_USER.get((group, name), [])]).manifest.settings


@pytest.mark.parametrize("group", sorted(OVERLAYS))
def test_overlays_are_global(group):
    for name in files(group):
        assert (CONF / group / f"{name}.yaml").read_text().startswith("# @package _global_\n"), name


def test_experiments_state_only_what_differs_from_the_defaults():
    for path in (CONF / "experiment").rglob("*.yaml"):
        text = Path(path).read_text().partition("\nreport:\n")[0]
        assert len(text.splitlines()) <= 40, path

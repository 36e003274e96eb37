"""The command that a report gives for a setting plans exactly this setting: its name is the hash of its config."""

import shlex

import pytest

from accelsweep.analysis.setting_findings import rerun_command
from accelsweep.planning.plan import make_plan

pytestmark = pytest.mark.heavy


def test_the_command_for_a_setting_plans_that_setting_alone(home):
    for overrides in (["experiment=quickstart", "batch_size=32,64"], ["experiment=ladder"]):
        manifest = make_plan(home, overrides).manifest
        for setting in [setting for setting in manifest.settings if setting.unsupported is None][::3]:
            typed = shlex.split(rerun_command(manifest, setting))
            again = make_plan(home, typed[2 : typed.index("--name")], name=typed[-1]).manifest
            assert [one.name for one in again.settings] == [setting.name]

"""Runs a trial of one setting before the user's own script is measured, which shows whether the script trains at all.

A trial also shows which metric the script's callbacks monitor, the batch size if only the script knows it and, on
several ranks, whether the batch size applies to each rank or is divided among them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from accelsweep.config.setting import Setting, label
from accelsweep.driver.console import say
from accelsweep.errors import InputError
from accelsweep.planning.interpreter import missing_module_remedy, usable_devices
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import UNKNOWN_BATCH_SIZE, BatchMeaning, Quality, TrialFindings
from accelsweep.results import RankResult

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


def plan_after_trial(
    folder: SweepFolder,
    plan: Plan,
    again: Callable[[TrialFindings], Plan],
    *,
    on_trial: Callable[[], object] = tuple,
) -> Plan:
    """Return the plan once a trial has succeeded; `again` makes a new plan, given what the trial has shown.

    `on_trial` is called when the first trial begins. There is no trial if the sweep does not measure the user's own
    script, measures whole processes, runs on a cluster, has been tried already, or has no setting that can run. A
    second trial follows if the first has found the batch size and some settings have several ranks. Raises InputError
    if the trial fails, with the script's own error, or if its first batch has an unexpected size.
    """
    project = plan.manifest.entry
    if project is None or plan.manifest.site.scheduler != "local":
        return plan
    if any(setting.config.whole_process for setting in plan.settings):
        return plan
    supported = [setting for setting in plan.settings if setting.unsupported is None]
    unknown = [setting for setting in plan.settings if setting.unsupported == UNKNOWN_BATCH_SIZE]
    several = [setting for setting in supported if setting.config.world_size > 1 and project.batch_is is None]
    first = [] if project.trial is not None else supported[:1]
    if not (candidates := unknown or several or first):
        return plan
    from accelsweep.executor.code_versions import CodeVersion
    from accelsweep.executor.trial import try_setting

    setting = min(candidates, key=lambda each: each.config.world_size)
    if candidates is several and setting.config.entry is not None and setting.config.entry.samples_per_step is not None:
        raise InputError(
            "a trial cannot find out whether the ranks divide batch_size if samples_per_step is set: write batch_is: "
            "per_device or batch_is: global into accelsweep.yaml"
        )
    say(f"trying a few steps first: {label(setting.axes)}")
    on_trial()
    trees = plan.versioned.trees if plan.versioned else ()
    tree = next((tree for tree in trees if tree.version.id == setting.config.version_id), None)
    version = None if tree is None else CodeVersion.of(folder, tree)
    trial = try_setting(folder, project, setting, plan.manifest.options.limits, version)
    result = trial.result
    if result is None or result.effective is None:
        if project.python is not None and setting.config.entry is not None:
            usable_devices(project.python, setting.config.entry.package)  # imports may be the cause
        message = f"{project.command} failed in its trial: {trial.reason}"
        if result is not None and result.user_location is not None and result.user_location not in message:
            message += f", in {result.user_location}"
        raise InputError(f"{message}{missing_module_remedy(message, project.python or sys.executable)}")
    findings = _findings(result)
    if candidates is unknown:
        ranks = setting.config.world_size if project.batch_is == "global" else 1
        found = findings.model_copy(update={"batch_size": result.effective.batch_size * ranks})
        return plan_after_trial(folder, again(found), again)
    batch_size = None if project.trial is None else project.trial.batch_size
    batch_is = _batch_meaning(setting, result) if candidates is several else None
    return again(findings.model_copy(update={"batch_size": batch_size, "batch_is": batch_is}))


def _findings(result: RankResult) -> TrialFindings:
    trainer = result.trainer
    assert trainer is not None, "the result has a window, so the script has built a Trainer"
    quality = None if trainer.monitor is None else Quality(metric=trainer.monitor, better=trainer.better)
    return TrialFindings(quality=quality, left_out=trainer.left_out)


def _batch_meaning(setting: Setting, result: RankResult) -> BatchMeaning:
    """Return whether the setting's batch size applies to each rank or to all together, given one rank's first batch."""
    assert result.effective is not None, "the caller has checked"
    typed, seen, ranks = setting.config.batch_size, result.effective.batch_size, setting.config.world_size
    if seen == typed:
        return "per_device"
    if seen * ranks == typed:
        return "global"
    raise InputError(
        f"batch_size={typed} gave each of {ranks} ranks a first batch of {seen} samples, which is neither {typed} nor "
        f"{typed // ranks}: name the project's own key for it under axes in accelsweep.yaml"
    )

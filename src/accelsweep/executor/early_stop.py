"""Decides, before a block starts, which settings it leaves out, based on the blocks that are done."""

from __future__ import annotations

import os
import traceback
from statistics import fmean

from accelsweep.analysis.intervals import MIN_PAIRS
from accelsweep.planning.resources import is_emulated
from accelsweep.records.early_decisions import MIN_BLOCKS, EarlyDecision, EarlyDecisions, early_decisions, stops_early
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.run_config import SettingConfig
from accelsweep.tasks import compared_rate

_PROBABLY_MUCH_SLOWER = 0.5

_PUT_OFF = "put off until the setting has not been left out: {cause}"


def decide_early(folder: SweepFolder, manifest: Manifest, block: str) -> dict[str, EarlyDecision]:
    """Store which settings the done blocks have decided, and return those that `block` leaves out.

    The analysis runs in a forked child, because numpy leaves threads behind, which would make forking ranks unsafe.
    """
    if not stops_early(manifest):
        return {}
    done = [planned.name for planned in manifest.blocks if folder.done(planned.name).exists()]
    before = early_decisions(folder)
    if len(done) < MIN_BLOCKS:
        if before.settings:  # they rest on blocks that have been reopened
            EarlyDecisions(reopened=before.reopened).write(folder.early_decisions)
        return {}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _store_decisions(folder, manifest, frozenset(done), before)
            code = 0
        except Exception:  # noqa: BLE001  without a decision, every repeat is measured
            traceback.print_exc()
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    decisions = early_decisions(folder).settings
    return {setting: decision for setting, decision in decisions.items() if block not in decision.blocks}


def quality_put_off(folder: SweepFolder, manifest: Manifest, setting: str, config: SettingConfig) -> str | None:
    """Return why the quality phase of a setting's next repeat is left to later blocks; None if it is not.

    A setting that is probably much slower than the baseline is soon left out, and its quality phase would be as slow.
    If it is not left out after all, enough blocks remain for a verdict on its quality.
    """
    done = [planned for planned in manifest.blocks if folder.done(planned.name).exists()]
    if (
        config.measure.quality_samples is None
        or setting in (manifest.baseline, *early_decisions(folder).reopened)
        or not stops_early(manifest)
        or len(done) >= MIN_BLOCKS
        or manifest.options.repeats < MIN_BLOCKS + MIN_PAIRS
    ):
        return None
    if is_emulated(config, manifest.site):
        return _PUT_OFF.format(cause=f"{config.precision} is emulated on this CPU")
    rate = compared_rate(manifest.options.analysis.rate, [config.task_name])
    for planned in done:
        rates = {
            name: [record.value(rate) for record in readable_records(folder, planned.runs) if record.setting == name]
            for name in (setting, manifest.baseline)
        }
        own, theirs = (
            [value for value in values if value is not None] for values in (rates[setting], rates[manifest.baseline])
        )
        if own and theirs and fmean(own) < _PROBABLY_MUCH_SLOWER * fmean(theirs):
            return _PUT_OFF.format(
                cause=f"its first repeat was {fmean(own) / fmean(theirs):.2g}x as fast as the baseline"
            )
    return None


def _store_decisions(folder: SweepFolder, manifest: Manifest, done: frozenset[str], before: EarlyDecisions) -> None:
    from accelsweep.analysis.collect import read_runs
    from accelsweep.analysis.racing import early_decisions_on

    runs = [run for run in read_runs(folder, manifest) if run.block is None or run.block in done]
    found = early_decisions_on(runs, manifest)
    settings = {setting: decision for setting, decision in found.items() if setting not in before.reopened}
    # A decision is never taken back: with more blocks, its interval would have been allowed less error.
    kept = {setting: decision for setting, decision in before.settings.items() if done.issuperset(decision.blocks)}
    decided = {**settings, **kept}
    if decided != before.settings:
        EarlyDecisions(settings=decided, reopened=before.reopened).write(folder.early_decisions)

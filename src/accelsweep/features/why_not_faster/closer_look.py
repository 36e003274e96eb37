"""Profiles one comparison for which nothing else explains why it is no faster, once a local sweep has been measured."""

from __future__ import annotations

import sys

from accelsweep.errors import AccelsweepError
from accelsweep.features.profile.command import profile_setting, refuse_to_profile
from accelsweep.features.profile.model import stored_profiles
from accelsweep.features.why_not_faster.model import Explanation, WhyNotFaster
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

STEPS = 10

MAX_SECONDS = 60.0
"""Settings whose profiled steps would take longer are not profiled unasked."""


class Busy(AccelsweepError):
    """The device is in use, and a profile that nobody has asked for does not wait."""


def profile_one_pair(folder: SweepFolder, findings: Findings) -> bool:
    """Profile the first inconclusive comparison; return whether the findings should be computed again.

    Whatever goes wrong is printed, and nothing else: the sweep itself is complete.
    """
    manifest, section = Manifest.read(folder.manifest), findings.section(WhyNotFaster)
    if section is None or not manifest.options.analysis.profile or manifest.site.scheduler != "local":
        return False
    steps = {setting.setting: setting.metrics.get("step_seconds") for setting in findings.settings}

    def is_quick(setting: str) -> bool:
        seconds = steps[setting]
        return seconds is not None and seconds.median is not None and 2 * STEPS * seconds.median < MAX_SECONDS

    inconclusive = [explanation for explanation in section.explanations if explanation.cause is None]
    quick = (each for each in inconclusive if is_quick(each.setting) and is_quick(each.against))
    explanation = next(quick, None)
    if explanation is None or _has_profile(folder, inconclusive):
        return False
    try:
        for setting in (explanation.against, explanation.setting):
            refuse_to_profile(folder, manifest, setting)
        for setting in (explanation.against, explanation.setting):
            profile_setting(folder, setting, STEPS, _refuse_to_wait)
    except AccelsweepError as error:
        print(f"not profiled: {error}", file=sys.stderr)  # noqa: T201 - the log of the rule
        return False
    return True


def _has_profile(folder: SweepFolder, inconclusive: list[Explanation]) -> bool:
    return bool(stored_profiles(folder, [explanation.setting for explanation in inconclusive]).intact)


def _refuse_to_wait(reason: str) -> None:
    raise Busy(reason)

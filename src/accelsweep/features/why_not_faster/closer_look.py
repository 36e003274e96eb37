"""Profiles one comparison for which nothing else explains why it is no faster, once a local sweep has been measured."""

from __future__ import annotations

import sys

from accelsweep.errors import AccelsweepError
from accelsweep.features.profile.model import PROFILE_FILE, profiles_folder
from accelsweep.features.why_not_faster.model import Explanation, WhyNotFaster
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_of

STEPS = 10

MAX_SECONDS = 60.0
"""Comparisons whose steps would take longer under the profiler are not profiled unasked."""


class Busy(AccelsweepError):
    """The device is in use, and a profile that nobody has asked for does not wait."""


def profile_one_pair(folder: SweepFolder, findings: Findings) -> bool:
    """Profile the first inconclusive comparison, once per sweep; return whether there is a profile to explain it.

    Why it could not be done is printed, and nothing else: the sweep itself is complete.
    """
    manifest, section = Manifest.read(folder.manifest), findings.section(WhyNotFaster)
    options = manifest.options
    if section is None or not options.analysis.profile or options.pilot or manifest.site.scheduler != "local":
        return False
    if folder.stop.exists() or any(profiles_folder(folder).glob(f"*/{PROFILE_FILE}")):
        return False
    inconclusive = (explanation for explanation in section.explanations if explanation.cause is None)
    explanation = next((each for each in inconclusive if _is_quick(folder, manifest, findings, each)), None)
    if explanation is None:
        return False
    from accelsweep.features.profile.command import profile_setting, refuse_to_profile  # imports all of a measurement

    try:
        for setting in (explanation.against, explanation.setting):
            refuse_to_profile(folder, manifest, setting)
        for setting in (explanation.against, explanation.setting):
            profile_setting(folder, setting, STEPS, _refuse_to_wait)
    except (AccelsweepError, OSError, ValueError) as error:
        print(f"not profiled: {error}", file=sys.stderr)  # noqa: T201 - the log of the rule
        return False
    return True


def _is_quick(folder: SweepFolder, manifest: Manifest, findings: Findings, explanation: Explanation) -> bool:
    """Return whether the steps of both profiles, with their warm-up, take less than `MAX_SECONDS`."""
    seconds = 0.0
    for finding in findings.settings:
        if finding.setting in (explanation.setting, explanation.against) and finding.hardware == explanation.hardware:
            step = finding.metrics.get("step_seconds")
            if step is None or step.median is None:
                return False
            config = block_of(folder, manifest, finding.setting).configs[finding.setting]
            seconds += step.median * (STEPS + max(STEPS, config.measure.warmup_steps))
    return seconds < MAX_SECONDS


def _refuse_to_wait(reason: str) -> None:
    raise Busy(reason)

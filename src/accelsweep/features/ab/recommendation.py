"""The recommendation for a comparison of versions: each setting against the same setting in the first version."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.headline import Situation
from accelsweep.config.setting import label_parts
from accelsweep.config.versions import without_version
from accelsweep.records.estimates import LESS, MORE, Verdict, percent_change
from accelsweep.records.findings import Certainty, Recommendation, SettingFinding, advice
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_commands import add_blocks_command, retry_command, sweep_command
from accelsweep.run_config import VERSION

_MAX_LABEL_WORDS = 4
"""Maximum length, in words, of a setting's label in the headline; the table shows the full label."""

_DECIDED = (*LESS, *MORE, Verdict.same)

_ORDER = (
    *_DECIDED,
    Verdict.undecided,
    Verdict.not_yet,
    Verdict.disturbed,
    Verdict.refused,
    Verdict.not_measured,
)


def about_versions(situation: Situation, more: int) -> Recommendation | None:
    """Return the recommendation, slowest settings first; None if no versions are compared.

    `more` is the number of additional blocks that would settle the undecided comparisons.
    """
    manifest = situation.manifest
    if not manifest.compared:
        return None
    compared = sorted(
        (setting for setting in situation.settings if setting.verdict in _ORDER),
        key=lambda setting: (
            _ORDER.index(setting.verdict),
            -abs(setting.ratio.value - 1.0) if setting.ratio is not None else 0.0,
        ),
    )
    first = manifest.compared[0].name
    if not compared:
        return advice(f"No version could be compared with {first}", Certainty.undecided)
    headline, *others = (_comparison_text(setting, first) for setting in compared)
    no_answer = [
        setting for setting in compared if setting.verdict in (Verdict.disturbed, Verdict.refused, Verdict.not_measured)
    ]
    return advice(
        headline,
        _certainty(compared),
        f"{'. '.join(others)}." if others else "",
        f"{no_answer[0].verdict_reason.rstrip('.')}." if no_answer else "",
        settle=add_blocks_command(manifest, more) or _rerun_command(manifest, compared),
        settle_blocks=more,
    )


def _comparison_text(setting: SettingFinding, first: str) -> str:
    """Describe a comparison, such as `HEAD is 3.0 % slower at batch 256 [-4.1, -1.9]`."""
    name, label = setting.axes[VERSION], _label(setting)
    if setting.ratio is None:
        missing = "was not measured" if setting.verdict is Verdict.not_measured else "cannot be compared"
        return f"{name} {missing}{label}"
    middle, interval = percent_change(setting.ratio)
    if setting.verdict in (Verdict.larger, Verdict.smaller):
        return f"{name} fits a batch {middle.lstrip('-')} % {setting.verdict}{label}{interval}"
    if setting.verdict in (*LESS, *MORE):
        return f"{name} is {middle.lstrip('-')} % {setting.verdict}{label}{interval}"
    if setting.verdict is Verdict.same:
        return f"No difference between {name} and {first}{label}{interval}"
    reason = {Verdict.disturbed: "disturbed", Verdict.not_yet: "too few blocks yet"}.get(setting.verdict, "undecided")
    return f"{name}{label}: {reason}{interval}"


def _label(setting: SettingFinding) -> str:
    """Return a suffix such as ` at batch 256`, or "" if `version` is the only axis."""
    parts = list(label_parts(without_version(setting.axes)))
    while len(parts) > 1 and len(" ".join(parts).split()) > _MAX_LABEL_WORDS:
        parts.pop(0)
    return f" at {', '.join(parts)}" if parts else ""


def _certainty(compared: Sequence[SettingFinding]) -> Certainty:
    if all(setting.verdict in _DECIDED for setting in compared):
        return Certainty.sure
    disturbed = any(setting.verdict is Verdict.disturbed for setting in compared)
    return Certainty.disturbed if disturbed else Certainty.undecided


def _rerun_command(manifest: Manifest, compared: Sequence[SettingFinding]) -> str | None:
    """Return the command that remeasures disturbed or missing settings; None if there are none."""
    if any(setting.verdict is Verdict.disturbed for setting in compared):
        return retry_command(manifest)
    return sweep_command(manifest) if any(setting.verdict is Verdict.not_measured for setting in compared) else None

"""Advice on a comparison of versions: each setting stands beside the same setting in the first version."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.headline import Situation, add_blocks_command, advice, percent_change, sweep_command
from accelsweep.config.setting import axis_descriptions
from accelsweep.config.versions import without_version
from accelsweep.records.estimates import LESS, MORE, Verdict
from accelsweep.records.findings import Certainty, Recommendation, SettingFinding
from accelsweep.run_config import VERSION

_MOST_PLACE_WORDS = 4
"""The words of a headline that may name its setting; the table has all of them."""

_ORDER = (
    *LESS,
    *MORE,
    Verdict.same,
    Verdict.undecided,
    Verdict.not_yet,
    Verdict.disturbed,
    Verdict.refused,
    Verdict.not_measured,
)

_DECIDED = (*LESS, *MORE, Verdict.same)


def about_versions(situation: Situation, more: int) -> Recommendation | None:
    """Return what the versions' comparisons support; `more` is the number of blocks that would settle the open ones.

    Slower settings come first, the slowest at the head. None for a sweep that compares no versions.
    """
    if not situation.manifest.compared:
        return None
    compared = sorted(
        (setting for setting in situation.settings if setting.verdict in _ORDER),
        key=lambda setting: (_ORDER.index(setting.verdict), abs(_ratio(setting) - 1.0) * -1.0),
    )
    first = situation.manifest.compared[0].name
    if not compared:
        return advice(f"No version could be compared with {first}", Certainty.not_yet)
    told = [_in_words(setting, first) for setting in compared]
    return advice(
        told[0],
        _certainty(compared),
        f"{'. '.join(told[1:])}." if told[1:] else "",
        _reasons(compared),
        settle=add_blocks_command(situation.manifest, more) or _settle(situation, compared),
        settle_blocks=more,
    )


def _in_words(setting: SettingFinding, first: str) -> str:
    """Return one comparison: `HEAD is 3.0 % slower at batch 256 [-4.1, -1.9]`."""
    name, place = setting.axes[VERSION], _place(setting)
    if setting.ratio is None:
        return (
            f"{name} {'was not measured' if setting.verdict is Verdict.not_measured else 'cannot be compared'}{place}"
        )
    middle, ends = percent_change(setting.ratio)
    if setting.verdict in (Verdict.larger, Verdict.smaller):
        return f"{name} holds a batch {middle.lstrip('-')} % {setting.verdict}{place}{ends}"
    if setting.verdict in (*LESS, *MORE):
        return f"{name} is {middle.lstrip('-')} % {setting.verdict}{place}{ends}"
    if setting.verdict is Verdict.same:
        return f"No difference between {name} and {first}{place}{ends}"
    why = {Verdict.disturbed: "disturbed", Verdict.not_yet: "too few blocks yet"}.get(setting.verdict, "undecided")
    return f"{name}{place}: {why}{ends}"


def _place(setting: SettingFinding) -> str:
    """Return ` at batch 256` for a setting of a sweep with more axes than that of the versions, else nothing."""
    parts = list(axis_descriptions(without_version(setting.axes)))
    while len(parts) > 1 and len(" ".join(parts).split()) > _MOST_PLACE_WORDS:
        parts.pop(0)
    return f" at {', '.join(parts)}" if parts else ""


def _ratio(setting: SettingFinding) -> float:
    return 1.0 if setting.ratio is None else setting.ratio.value


def _certainty(compared: Sequence[SettingFinding]) -> Certainty:
    if all(setting.verdict in _DECIDED for setting in compared):
        return Certainty.sure
    disturbed = any(setting.verdict is Verdict.disturbed for setting in compared)
    return Certainty.disturbed if disturbed else Certainty.not_yet


def _reasons(compared: Sequence[SettingFinding]) -> str:
    """Return why the first comparison without an answer has none."""
    silent = (Verdict.disturbed, Verdict.refused, Verdict.not_measured)
    found = next((setting for setting in compared if setting.verdict in silent), None)
    return f"{found.verdict_reason.rstrip('.')}." if found is not None else ""


def _settle(situation: Situation, compared: Sequence[SettingFinding]) -> str | None:
    """Return the command that measures again what was disturbed or not measured; None where nothing was."""
    again = sweep_command(situation.manifest)
    if any(setting.verdict is Verdict.disturbed for setting in compared):
        return f"accelsweep retry {situation.manifest.sweep} --outcome disturbed && {again}"
    return again if any(setting.verdict is Verdict.not_measured for setting in compared) else None

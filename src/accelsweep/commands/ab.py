"""`accelsweep ab`: versions of the user's sources as one more axis, measured in the same blocks, and a gate on them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.answers.forge import annotate, check_format
from accelsweep.commands.running.versions import VersionsFound, decided, measured_versions
from accelsweep.driver.console import say
from accelsweep.driver.plan_preview import made_plan, show_plan
from accelsweep.driver.run_sweep import Request
from accelsweep.records.layout import SweepFolder

if TYPE_CHECKING:
    from accelsweep.answers.forms.versions import AbAnswer


def words_apart(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of versions and the overrides among the words of a command line.

    An override holds `=` or begins with `~`; no name of a commit begins so.
    """
    overrides = tuple(word for word in words if "=" in word or word.startswith("~"))
    return tuple(word for word in words if word not in overrides), overrides


def compare_versions(home: Path, request: Request, *, as_json: bool = False, form: str = "text") -> int:
    """Measure the versions that `request` names, and write the report; return the exit code, which the gate decides.

    `form` is `text`, or `github` for annotations.
    """
    check_format(form)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, found = measured_versions(home, request)
    if found is None:
        return code
    answer = _answer(found)
    if as_json:
        say(answer.text())
        return code
    if form == "github":
        annotate(answer)
    if found.gate_words is not None:
        say(found.gate_words)
    return code


def preview_versions(home: Path, request: Request, *, as_json: bool = False, form: str = "text") -> None:
    """Print the plan of the versions that `request` names, as `run --dry-run` does, and leave no tree behind."""
    from accelsweep.drive.versions.trees import trees_of

    check_format(form)
    asked = decided(home, request)
    folder = SweepFolder(home, str(asked.name))
    with trees_of(folder, asked.versions, asked.pythons, keep=False) as trees:
        plan = made_plan(
            home,
            asked.overrides,
            name=folder.name,
            add_repeats=asked.add_repeats,
            profile=asked.profile,
            until_decided=asked.until_decided,
            trees=trees,
        )
        show_plan(home, plan, as_json=as_json)


def _answer(found: VersionsFound) -> AbAnswer:
    from accelsweep.analysis.compare_sweeps import GateState
    from accelsweep.answers.forms.versions import AbAnswer, ComparedVersion, VersionedSetting

    findings, manifest = found.findings, found.manifest
    states, partners = {id(one.cell): one.state for one in found.settings}, manifest.partners
    compared = [cell for cell in findings.cells if cell.cell not in manifest.baselines]
    return AbAnswer(
        sweep=findings.sweep,
        headline=findings.recommendation.headline,
        versions=tuple(map(ComparedVersion.model_validate, manifest.compared)),
        family=findings.family,
        confidence=findings.confidence,
        threshold=findings.threshold,
        rate_unit=findings.rate_unit,
        rows=tuple(
            VersionedSetting(
                cell=cell.cell,
                against=partners.get(cell.cell, ""),
                label=cell.label,
                axes=cell.axes,
                rate=cell.rate,
                ratio=cell.speedup.ratio if cell.speedup else None,
                verdict=cell.verdict,
                reason=cell.verdict_reason,
                blocks=cell.speedup.ratio.count if cell.speedup else 0,
                gate=states.get(id(cell)),
                doubts=cell.doubts,
            )
            for cell in compared
        ),
        fail_if=found.fail_if,
        gate=found.state,
        failing=tuple(one.cell.cell for one in found.settings if one.state is GateState.regression),
    )

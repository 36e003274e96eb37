"""`accelsweep ab`: versions of the user's sources as one more axis, measured in the same blocks, and a gate on them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.digits import count_of
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, EXIT_REGRESSION
from accelsweep.commands.run import carried_out
from accelsweep.commands.running.request import Ended, Request
from accelsweep.core.findings.findings import Findings
from accelsweep.core.plans import Manifest
from accelsweep.drive.console import say
from accelsweep.drive.versions.forge import annotate, check_format
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.analyse.findings.gate import Gated, GateState
    from accelsweep.drive.answers.versions import AbAnswer


def words_apart(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of versions and the overrides among the words of a command line.

    An override holds `=` or begins with `~`; no name of a commit begins so.
    """
    overrides = tuple(word for word in words if "=" in word or word.startswith("~"))
    return tuple(word for word in words if word not in overrides), overrides


def compare_versions(home: Path, request: Request, *, as_json: bool = False, form: str = "text") -> int:
    """Measure the versions that `request` names, and write the report; return the exit code.

    With `fail_if` it is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise. Where
    looks decide about more blocks, the gate's threshold is that of the verdicts. `form` is `text`, or `github` for
    annotations.
    """
    from accelsweep.analyse.findings.between_sweeps import parse_gate
    from accelsweep.analyse.findings.gate import gated, worst

    check_format(form)
    fail_if = request.fail_if
    gate = parse_gate(fail_if) if fail_if is not None else None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        ended = carried_out(home, decided(home, request))
    folder = SweepFolder(home, ended.sweep)
    if ended.code == EXIT_INTERRUPTED or not folder.findings.is_file():
        return ended.code
    findings, manifest = Findings.read(folder.findings), Manifest.read(folder.manifest)
    if findings.revision != manifest.revision:  # no new ones were made, and `run` has said why
        return ended.code
    settings = gated(findings, manifest.baselines, gate) if gate is not None else ()
    state = worst(settings) if gate is not None else None
    answer = _answer(findings, manifest, fail_if, settings, state)
    if as_json:
        say(answer.text())
        return _code(ended, state)
    if form == "github":
        annotate(answer)
    if fail_if is not None and state is not None:
        say(f"{fail_if}: {_in_words(settings, state)}")
    return _code(ended, state)


def preview_versions(home: Path, request: Request, *, as_json: bool = False, form: str = "text") -> None:
    """Print the plan of the versions that `request` names, as `run --dry-run` does, and leave no tree behind."""
    from accelsweep.commands.plan import print_plan
    from accelsweep.drive.versions.trees import trees_of

    check_format(form)
    asked = decided(home, request)
    folder = SweepFolder(home, str(asked.name))
    with trees_of(folder, asked.versions, asked.pythons, keep=False) as trees:
        print_plan(
            home,
            asked.overrides,
            name=folder.name,
            add_repeats=asked.add_repeats,
            profile=asked.profile,
            as_json=as_json,
            until_decided=asked.until_decided,
            trees=trees,
        )


def decided(home: Path, request: Request) -> Request:
    """Return the request with the sweep's name, and with the gate's threshold where that decides about blocks.

    Raises InputError for a gate that is not understood.
    """
    from accelsweep.analyse.findings.between_sweeps import parse_gate
    from accelsweep.plan.versioned import usual_name

    gate = parse_gate(request.fail_if) if request.fail_if is not None else None
    if gate is not None and request.until_decided and not any(map(_is_threshold, request.overrides)):
        decides = f"analysis.threshold={gate.threshold:g}"  # else blocks would be spent on another question
        request = replace(request, overrides=(*request.overrides, decides))
    return replace(request, name=request.name or usual_name(home, request.overrides))


def _is_threshold(override: str) -> bool:
    return override.lstrip("+").partition("=")[0] == "analysis.threshold"


def _code(ended: Ended, state: GateState | None) -> int:
    """Return the exit code: the gate decides where there is one, because runs that failed may not matter to it."""
    from accelsweep.analyse.findings.gate import GateState

    if state is None:
        return ended.code
    return {GateState.regression: EXIT_REGRESSION, GateState.not_measured: EXIT_INCOMPLETE}.get(state, EXIT_OK)


def _in_words(settings: Sequence[Gated], state: GateState) -> str:
    from accelsweep.analyse.findings.gate import GateState

    here = [one.cell for one in settings if one.state is state]
    of = f"{len(here)} of {count_of(len(settings), 'comparison')}"
    if state is GateState.regression:
        return f"failed by {'; '.join(cell.label for cell in here)}"
    if state is GateState.not_measured:
        why = here[0].verdict_reason if here else "no version could be compared"
        return f"{of} could not be judged: {why}"
    if state is GateState.none_found:
        return f"none was found, but {of} could still hide one: more blocks would tell"
    return f"shown absent in {'the only comparison' if len(settings) == 1 else f'all {len(settings)} comparisons'}"


def _answer(
    findings: Findings, manifest: Manifest, fail_if: str | None, settings: Sequence[Gated], state: GateState | None
) -> AbAnswer:
    from accelsweep.analyse.findings.gate import GateState
    from accelsweep.drive.answers.versions import AbAnswer, ComparedVersion, VersionedSetting

    states, partners = {id(one.cell): one.state for one in settings}, manifest.partners
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
        fail_if=fail_if,
        gate=state,
        failing=tuple(one.cell.cell for one in settings if one.state is GateState.regression),
    )

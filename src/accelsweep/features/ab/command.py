"""`accelsweep ab`: versions of the user's sources as one more axis, measured in the same blocks, and a gate on them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, DryRun, FailIf, complete_override
from accelsweep.cli.run_options import measures, run_elsewhere
from accelsweep.config.versions import Version
from accelsweep.driver.console import say
from accelsweep.driver.json_output import Answer
from accelsweep.driver.plan_preview import plan_to_show, show_plan
from accelsweep.driver.request import Extension, Request
from accelsweep.driver.run_sweep import new_findings, run_sweep
from accelsweep.errors import InputError, nearest
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.report.markdown import escape
from accelsweep.report.units import ratio_text
from accelsweep.results import Doubt

if TYPE_CHECKING:
    from accelsweep.analysis.compare_sweeps import Gate, GateResult, GateState
    from accelsweep.planning.plan import Plan


Pythons = Annotated[
    list[str] | None,
    typer.Option("--python", help="an environment's interpreter instead of a commit; give two or more"),
]

TwoVersions = Annotated[
    list[str] | None,
    typer.Argument(
        help="two or more commits, the baseline first, or . for the files as they are now; then Hydra overrides",
        show_default=False,
        autocompletion=complete_override,
    ),
]


class VersionedSetting(Frozen):
    """A setting in a later version, beside the same setting in the first one."""

    setting: str = Field(description="the setting's name in files")
    against: str = Field(description="the name of the setting that it is compared with")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    rate: Estimate | None = Field(description="its rate")
    ratio: Estimate | None = Field(description="its rate divided by that of the first version")
    verdict: Verdict = Field(description="what the whole interval of the ratio supports")
    reason: str = Field(description="why that is the verdict")
    blocks: int = Field(description="the number of blocks that the ratio rests on")
    gate: str | None = Field(
        description="how it stands to `fail_if`: `regression`, `not measured`, `none found` or `shown absent`"
    )
    doubts: tuple[Doubt, ...] = Field(description="reasons to distrust the rate")


class AbAnswer(Answer):
    """`accelsweep ab VERSION VERSION --json`: the versions, setting by setting."""

    kind: ClassVar[str] = "ab"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    versions: tuple[Version, ...] = Field(description="what was compared")
    family: int = Field(description="the number of ratios whose intervals hold together")
    confidence: float = Field(description="the confidence with which they do")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[VersionedSetting, ...] = Field(description="the settings of all versions but the first")
    fail_if: str | None = Field(description="the gate that was asked for")
    gate: str | None = Field(description="the worst state of a row, which decides the exit code")
    failing: tuple[str, ...] = Field(description="settings that the gate fails by name; then the exit code is 3")


# `--format github`: one annotation a setting for the forge that runs a gate, and a summary in Markdown.

FORMATS = ("text", "github")

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The environment variable by which the runner names the file that a step's summary is written to."""

_LEVELS: Mapping[str | None, str] = {"regression": "error", "not measured": "warning"}


def check_format(name: str) -> None:
    """Raise InputError for a format that is not known."""
    if name not in FORMATS:
        raise InputError(f"--format {name}: there is no such format{nearest(name, FORMATS)}; take text or github")


def annotate(answer: AbAnswer) -> None:
    """Print one annotation for each setting, and add the summary to the runner's file, where there is one."""
    for row in answer.rows:
        say(annotation(row, answer.fail_if))
    if path := os.environ.get(SUMMARY_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(answer))


def annotation(row: VersionedSetting, fail_if: str | None) -> str:
    """Return a workflow command: an error for what fails the gate, a warning for what could not be judged."""
    level = _LEVELS.get(row.gate, "notice")
    beside = f" ({row.gate}: {fail_if})" if row.gate is not None else ""
    ratio = f"{ratio_text(row.ratio)}, " if row.ratio else ""
    text = f"{row.label}: {ratio}{row.verdict}{beside}; {row.reason}"
    return f"::{level} title={_property(f'accelsweep {row.verdict}')}::{_data(text)}"


def summary(answer: AbAnswer) -> str:
    """Return the comparison as Markdown: the headline, a table with a line for each setting, the gate."""
    against = f"against {answer.versions[0].name}"
    lines = [
        f"### {escape(answer.headline)}",
        "",
        f"| setting | rate {escape(against)} | verdict | gate |",
        "|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_settings(row))} |" for row in answer.rows]
    told = f"`{answer.fail_if}`: {answer.gate}. " if answer.fail_if is not None else ""
    return "\n".join([*lines, "", f"{told}Sweep {escape(answer.sweep)}, {_blocks(answer.rows)}.", "", ""])


def _settings(row: VersionedSetting) -> tuple[str, ...]:
    return escape(row.label), escape(ratio_text(row.ratio)) if row.ratio else "-", row.verdict, row.gate or "-"


def _blocks(rows: Sequence[VersionedSetting]) -> str:
    counts = sorted({row.blocks for row in rows})
    return f"{' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} blocks" if counts else "no blocks"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# Versions measured side by side, and a gate on what was found.


@dataclass(frozen=True)
class VersionsFound:
    """The findings on versions. With a gate, `settings` are those that it judged, and `state` is theirs together."""

    findings: Findings
    manifest: Manifest
    fail_if: str | None = None
    settings: tuple[GateResult, ...] = ()
    state: GateState | None = None

    @property
    def gate_words(self) -> str | None:
        """The gate's answer as a sentence; None without a gate."""
        from accelsweep.analysis.compare_sweeps import gate_message

        return None if self.state is None else f"{self.fail_if}: {gate_message(self.settings, self.state)}"


class VersionsRequest(Extension):
    """The versions that a request compares, the baseline first, and the gate on them.

    They are commits by `names`, or the environments of `pythons`. `pins` are what the names stood for when the first
    plan was made. No tree of a `preview` outlasts its plan.
    """

    command: Literal["ab"] = "ab"
    names: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    pins: tuple[Version, ...] = ()
    fail_if: str | None = None
    preview: bool = False

    @property
    def arguments(self) -> list[str]:
        """The versions and the gate, as they are typed."""
        pythons = [word for path in self.pythons for word in ("--python", path)]
        return [*self.names, *pythons, *(["--fail-if", self.fail_if] if self.fail_if is not None else [])]

    @property
    def gate(self) -> Gate | None:
        """The gate. Raises InputError for one that is not understood."""
        from accelsweep.analysis.compare_sweeps import parse_gate

        return parse_gate(self.fail_if) if self.fail_if is not None else None

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request with the sweep's name, and with the gate's threshold where that decides about blocks."""
        from accelsweep.planning.checked_grid import usual_name

        gate = self.gate
        if gate is not None and request.until_decided and not any(map(_is_threshold, request.overrides)):
            decides = f"analysis.threshold={gate.threshold:g}"  # else blocks would be spent on another question
            request = replace(request, overrides=(*request.overrides, decides))
        return replace(request, name=request.name or usual_name(home, request.overrides))

    def pinned(self, plan: Plan) -> VersionsRequest:
        """Return the request with the commits that the names stand for now."""
        return self.model_copy(update={"pins": plan.manifest.compared}) if self.names else self

    def plan(self, home: Path, request: Request, make: Callable[..., Plan]) -> Plan:
        """Return the plan, after the trees of its versions were made."""
        from accelsweep.features.ab.planning import versioned_grid
        from accelsweep.features.ab.trees import trees_of

        assert request.name is not None, "`resolved` names the sweep"
        folder = SweepFolder(home, request.name)
        with trees_of(folder, self.names, self.pythons, self.pins, keep=not self.preview) as trees:
            return make(versioned=versioned_grid(folder, trees, request.overrides))

    def run(self, home: Path, request: Request) -> int:
        """Measure the versions; return the exit code, which the gate decides, after its answer in words."""
        code, found = measured_versions(home, request)
        if found is not None and found.gate_words is not None:
            say(found.gate_words)
        return code


def asked_versions(request: Request) -> VersionsRequest:
    """Return the versions that a request of `ab` compares."""
    assert isinstance(request.extension, VersionsRequest)
    return request.extension


def measured_versions(home: Path, request: Request) -> tuple[int, VersionsFound | None]:
    """Measure the versions that `request` names, and write the report; return the exit code and what was found.

    With `fail_if` the code is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise.
    Where looks decide about more blocks, the gate's threshold is that of the verdicts.
    """
    from accelsweep.analysis.compare_sweeps import gate_findings, worst

    asked = asked_versions(request)
    gate = asked.gate
    ended = run_sweep(home, asked.resolved(home, request))
    if (found := new_findings(home, ended)) is None:
        return ended.code, None
    findings, manifest = found
    if gate is None:
        return ended.code, VersionsFound(findings, manifest)
    settings = gate_findings(findings, manifest.baselines, gate)
    state = worst(settings)
    return state.exit_code, VersionsFound(findings, manifest, asked.fail_if, settings, state)


def _is_threshold(override: str) -> bool:
    return override.lstrip("+").partition("=")[0] == "analysis.threshold"


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
    check_format(form)
    asked = asked_versions(request).model_copy(update={"preview": True})
    request = asked.resolved(home, replace(request, extension=asked))
    show_plan(home, plan_to_show(home, request), as_json=as_json)


def _answer(found: VersionsFound) -> AbAnswer:
    from accelsweep.analysis.compare_sweeps import GateState

    findings, manifest = found.findings, found.manifest
    states, partners = {id(one.setting): one.state for one in found.settings}, manifest.partners
    compared = [setting for setting in findings.settings if setting.setting not in manifest.baselines]
    return AbAnswer(
        sweep=findings.sweep,
        headline=findings.recommendation.headline,
        versions=manifest.compared,
        family=findings.family,
        confidence=findings.confidence,
        threshold=findings.threshold,
        rate_unit=findings.rate_unit,
        rows=tuple(
            VersionedSetting(
                setting=setting.setting,
                against=partners.get(setting.setting, ""),
                label=setting.label,
                axes=setting.axes,
                rate=setting.rate,
                ratio=setting.speedup.ratio if setting.speedup else None,
                verdict=setting.verdict,
                reason=setting.verdict_reason,
                blocks=setting.speedup.ratio.count if setting.speedup else 0,
                gate=states.get(id(setting)),
                doubts=setting.doubts,
            )
            for setting in compared
        ),
        fail_if=found.fail_if,
        gate=found.state,
        failing=tuple(one.setting.setting for one in found.settings if one.state is GateState.regression),
    )


@measures()
def ab(
    request: Request,
    words: TwoVersions = None,
    python: Pythons = None,
    fail_if: FailIf = None,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    form: Annotated[str, typer.Option("--format", help="text, or github for annotations and a summary")] = "text",
) -> None:
    """`accelsweep ab`."""
    versions, overrides = words_apart(words or ())
    compared = VersionsRequest(names=versions, pythons=tuple(python or ()), fail_if=fail_if)
    request = replace(request, overrides=overrides, extension=compared)
    run_elsewhere(request, {"--dry-run": dry_run, "--json": as_json, f"--format {form}": form != "text"})
    if dry_run:
        preview_versions(Path.cwd(), request, as_json=as_json, form=form)
        return
    raise typer.Exit(compare_versions(Path.cwd(), request, as_json=as_json, form=form))

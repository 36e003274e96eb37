"""`accelsweep ab`: measure versions of the sources, or environments, in the same blocks, and gate on the difference."""

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
from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Extension, Request
from accelsweep.driver.run_sweep import new_findings, run_sweep
from accelsweep.errors import InputError, nearest
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.report.formatting import ratio_text
from accelsweep.report.markdown import escape
from accelsweep.results import Doubt

if TYPE_CHECKING:
    from accelsweep.analysis.compare_sweeps import Gate, GateResult, GateState
    from accelsweep.planning.plan import Plan
    from accelsweep.records.plan import TrialFindings


class VersionsRequest(Extension):
    """The versions to compare (the commits `names` or the environments `pythons`, baseline first), and the gate.

    `pins` are the commits that `names` resolved to when the sweep was first planned. If `preview` is set, the versions'
    source trees are removed after planning.
    """

    command: Literal["ab"] = "ab"
    names: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    pins: tuple[Version, ...] = ()
    fail_if: str | None = None
    preview: bool = False

    @property
    def arguments(self) -> list[str]:
        """The versions and the gate as command-line arguments."""
        pythons = [word for path in self.pythons for word in ("--python", path)]
        return [*self.names, *pythons, *(["--fail-if", self.fail_if] if self.fail_if is not None else [])]

    @property
    def gate(self) -> Gate | None:
        """The parsed gate. Raises InputError for invalid syntax."""
        from accelsweep.analysis.compare_sweeps import parse_gate

        return parse_gate(self.fail_if) if self.fail_if is not None else None

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request with the sweep's name; with `--until-decided`, use the gate's threshold by default."""
        from accelsweep.planning.checked_grid import comparison_name

        gate, overrides = self.gate, request.overrides
        has_threshold = any(word.lstrip("+").partition("=")[0] == "analysis.threshold" for word in overrides)
        if gate is not None and request.until_decided and not has_threshold:
            # With a different threshold, the additional blocks might not settle whether the gate passes.
            request = replace(request, overrides=(*overrides, f"analysis.threshold={gate.threshold:g}"))
        name = request.name or comparison_name(home, request.overrides, entry=request.entry)
        return replace(request, name=name)

    def pinned(self, plan: Plan) -> VersionsRequest:
        """Return the request with its names pinned to the plan's commits."""
        return self.model_copy(update={"pins": plan.manifest.compared}) if self.names else self

    def plan(self, home: Path, request: Request, make: Callable[..., Plan], trial: TrialFindings | None) -> Plan:
        """Check out the versions and return the plan."""
        from accelsweep.features.ab.planning import versioned_grid
        from accelsweep.features.ab.version_trees import version_trees
        from accelsweep.planning.entry_point import measured_project

        assert request.name is not None, "`resolved` sets the sweep's name"
        folder = SweepFolder(home, request.name)
        project = measured_project(home, request.entry, request.overrides)
        script = project is not None
        with version_trees(folder, self.names, self.pythons, self.pins, script=script, keep=not self.preview) as trees:
            return make(versioned=versioned_grid(folder, trees, request.overrides, project, trial))

    def discard(self, folder: SweepFolder) -> None:
        """Remove the commits' trees."""
        from accelsweep.features.ab.version_trees import discard_trees

        if self.names:
            discard_trees(folder)

    def run(self, home: Path, request: Request) -> int:
        """Measure the versions, print the gate's result, and return the exit code."""
        code, comparison = measure_versions(home, request)
        if comparison is not None and comparison.gate_message is not None:
            say(comparison.gate_message)
        return code


@dataclass(frozen=True)
class VersionComparison:
    """Findings on versions. With a gate, `gate_results` contains each setting's result and `state` the worst result."""

    findings: Findings
    manifest: Manifest
    fail_if: str | None = None
    gate_results: tuple[GateResult, ...] = ()
    state: GateState | None = None

    @property
    def gate_message(self) -> str | None:
        """The gate's result as a sentence; None if no gate is set."""
        from accelsweep.analysis.compare_sweeps import gate_message

        return None if self.state is None else f"{self.fail_if}: {gate_message(self.gate_results, self.state)}"


def measure_versions(home: Path, request: Request) -> tuple[int, VersionComparison | None]:
    """Measure the versions and write the report; return the exit code and the comparison, if there are findings.

    With `fail_if`, the exit code is 3 for a regression, 1 if a setting could not be judged, and 0 otherwise.
    """
    from accelsweep.analysis.compare_sweeps import gate_findings, worst

    assert isinstance(request.extension, VersionsRequest)
    gate = request.extension.gate
    ended = run_sweep(home, request.extension.resolved(home, request))
    if (results := new_findings(home, ended)) is None:
        return ended.code, None
    findings, manifest = results
    if gate is None:
        return ended.code, VersionComparison(findings, manifest)
    gate_results = gate_findings(findings, manifest.baselines, gate)
    state = worst(gate_results)
    return state.exit_code, VersionComparison(findings, manifest, request.extension.fail_if, gate_results, state)


class VersionedSetting(Frozen):
    """A setting in one version, compared with the same setting in the first version."""

    setting: str = Field(description="the setting's ID")
    against: str = Field(description="the ID of the setting that it is compared with")
    label: str = Field(description="the setting's label")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    rate: Estimate | None = Field(description="its rate")
    ratio: Estimate | None = Field(description="its rate divided by the rate of the first version")
    verdict: Verdict = Field(description="the verdict that the ratio's whole interval supports")
    reason: str = Field(description="the reason for the verdict")
    blocks: int = Field(description="the number of blocks behind the ratio")
    gate: str | None = Field(
        description="its state under `fail_if`: `regression`, `not measured`, `none found` or `shown absent`"
    )
    doubts: tuple[Doubt, ...] = Field(description="reasons to distrust the rate")


class AbAnswer(Answer):
    """`accelsweep ab VERSION VERSION --json`: the comparison of versions, setting by setting."""

    kind: ClassVar[str] = "ab"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    versions: tuple[Version, ...] = Field(description="the compared versions, the baseline first")
    family: int = Field(description="the number of ratios whose intervals hold simultaneously")
    confidence: float = Field(description="the simultaneous confidence of these intervals")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[VersionedSetting, ...] = Field(description="the settings of all versions but the first")
    fail_if: str | None = Field(description="the gate as specified on the command line")
    gate: str | None = Field(description="the worst gate state of any row; it determines the exit code")
    failing: tuple[str, ...] = Field(description="the IDs of settings with a regression; if any, the exit code is 3")

    @classmethod
    def from_comparison(cls, comparison: VersionComparison) -> AbAnswer:
        """Convert a comparison to the command's JSON answer."""
        from accelsweep.analysis.compare_sweeps import GateState

        findings, manifest = comparison.findings, comparison.manifest
        states = {result.setting.setting: result.state for result in comparison.gate_results}
        baselines = manifest.baselines
        return cls(
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
                    against=manifest.partners.get(setting.setting, ""),
                    label=setting.label,
                    axes=setting.axes,
                    rate=setting.rate,
                    ratio=setting.ratio,
                    verdict=setting.verdict,
                    reason=setting.verdict_reason,
                    blocks=setting.ratio.count if setting.ratio else 0,
                    gate=states.get(setting.setting),
                    doubts=setting.doubts,
                )
                for setting in findings.settings
                if setting.setting not in baselines
            ),
            fail_if=comparison.fail_if,
            gate=comparison.state,
            failing=tuple(name for name, state in states.items() if state is GateState.regression),
        )


def compare_versions(home: Path, request: Request, *, as_json: bool = False, output_format: str = "text") -> int:
    """Measure the versions, write the report and print the comparison; return the exit code.

    `output_format` is `text`, or `github` for annotations.
    """
    check_format(output_format)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, comparison = measure_versions(home, request)
    if comparison is None:
        return code
    if as_json:
        say(AbAnswer.from_comparison(comparison).text())
        return code
    if output_format == "github":
        annotate(AbAnswer.from_comparison(comparison))
    if comparison.gate_message is not None:
        say(comparison.gate_message)
    return code


def preview_versions(home: Path, request: Request, *, as_json: bool = False, output_format: str = "text") -> None:
    """Print the plan, as `run --dry-run` does, and remove the trees that planning needed."""
    check_format(output_format)
    assert isinstance(request.extension, VersionsRequest)
    preview = request.extension.model_copy(update={"preview": True})
    request = preview.resolved(home, replace(request, extension=preview))
    preview_plan(home, request, as_json=as_json)


def split_arguments(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split command-line arguments into version names and Hydra overrides.

    An override contains `=` or starts with `~`, which no revision name does.
    """
    overrides = tuple(word for word in arguments if "=" in word or word.startswith("~"))
    return tuple(word for word in arguments if word not in overrides), overrides


@measures(without=("minutes",))
def ab(
    request: Request,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VERSION VERSION... [OVERRIDES]...",
            help="two or more commits (. is the working tree), baseline first, followed by Hydra overrides",
            show_default=False,
            autocompletion=complete_override,
        ),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", help="an environment's interpreter, instead of a commit; specify at least two"),
    ] = None,
    fail_if: FailIf = None,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    output_format: Annotated[
        str, typer.Option("--format", help="text, or github for annotations and a summary")
    ] = "text",
) -> None:
    """`accelsweep ab`."""
    versions, overrides = split_arguments(arguments or ())
    extension = VersionsRequest(names=versions, pythons=tuple(python or ()), fail_if=fail_if)
    request = replace(request, overrides=overrides, extension=extension)
    foreground_only = {"--dry-run": dry_run, "--json": as_json, f"--format {output_format}": output_format != "text"}
    run_elsewhere(request, foreground_only)
    if dry_run:
        preview_versions(Path.cwd(), request, as_json=as_json, output_format=output_format)
        return
    raise typer.Exit(compare_versions(Path.cwd(), request, as_json=as_json, output_format=output_format))


# `--format github`: https://docs.github.com/actions/reference/workflow-commands-for-github-actions

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The GitHub Actions runner sets this variable to the path of the step's Markdown summary file."""

_LEVELS: Mapping[str | None, str] = {"regression": "error", "not measured": "warning"}


def check_format(name: str) -> None:
    """Raise InputError for an unknown output format."""
    if name not in (formats := ("text", "github")):
        raise InputError(f"--format {name}: unknown format{nearest(name, formats)}; use text or github")


def annotate(answer: AbAnswer) -> None:
    """Print an annotation for each setting, and append the summary to the runner's summary file, if any."""
    for row in answer.rows:
        say(annotation(row, answer.fail_if))
    if path := os.environ.get(SUMMARY_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(answer))


def annotation(row: VersionedSetting, fail_if: str | None) -> str:
    """Return a GitHub workflow command: error for a regression, warning if it could not be judged, else notice."""
    level = _LEVELS.get(row.gate, "notice")
    gate = f" ({row.gate}: {fail_if})" if row.gate is not None else ""
    ratio = f"{ratio_text(row.ratio)}, " if row.ratio else ""
    title = _escape_data(f"accelsweep {row.verdict}").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escape_data(f'{row.label}: {ratio}{row.verdict}{gate}; {row.reason}')}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def summary(answer: AbAnswer) -> str:
    """Return the comparison as Markdown: the headline, a table of settings, and the gate."""
    lines = [
        f"### {escape(answer.headline)}",
        "",
        f"| setting | rate against {escape(answer.versions[0].name)} | verdict | gate |",
        "|---|---|---|---|",
    ]
    for row in answer.rows:
        ratio = escape(ratio_text(row.ratio)) if row.ratio else "-"
        lines.append(f"| {escape(row.label)} | {ratio} | {row.verdict} | {row.gate or '-'} |")
    gate = f"`{answer.fail_if}`: {answer.gate}. " if answer.fail_if is not None else ""
    counts = sorted({row.blocks for row in answer.rows})
    blocks = f"{' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} blocks" if counts else "no blocks"
    return "\n".join([*lines, "", f"{gate}Sweep {escape(answer.sweep)}, {blocks}.", "", ""])

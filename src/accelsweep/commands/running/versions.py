"""Versions measured side by side, and a gate on what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.driver.run_sweep import Request, carried_out, found_by
from accelsweep.records.findings import Findings
from accelsweep.records.plan import Manifest

if TYPE_CHECKING:
    from accelsweep.analysis.compare_sweeps import Gated, GateState


@dataclass(frozen=True)
class VersionsFound:
    """The findings on versions. With a gate, `settings` are those that it judged, and `state` is theirs together."""

    findings: Findings
    manifest: Manifest
    fail_if: str | None = None
    settings: tuple[Gated, ...] = ()
    state: GateState | None = None

    @property
    def gate_words(self) -> str | None:
        """The gate's answer as a sentence; None without a gate."""
        from accelsweep.analysis.compare_sweeps import words_of_gate

        return None if self.state is None else f"{self.fail_if}: {words_of_gate(self.settings, self.state)}"


def measured_versions(home: Path, request: Request) -> tuple[int, VersionsFound | None]:
    """Measure the versions that `request` names, and write the report; return the exit code and what was found.

    With `fail_if` the code is 3 for a supported regression, 1 where a setting could not be judged, and 0 otherwise.
    Where looks decide about more blocks, the gate's threshold is that of the verdicts.
    """
    from accelsweep.analysis.compare_sweeps import gated, parse_gate, worst

    gate = parse_gate(request.fail_if) if request.fail_if is not None else None
    ended = carried_out(home, decided(home, request))
    if (found := found_by(home, ended)) is None:
        return ended.code, None
    findings, manifest = found
    if gate is None:
        return ended.code, VersionsFound(findings, manifest)
    settings = gated(findings, manifest.baselines, gate)
    state = worst(settings)
    return state.exit_code, VersionsFound(findings, manifest, request.fail_if, settings, state)


def decided(home: Path, request: Request) -> Request:
    """Return the request with the sweep's name, and with the gate's threshold where that decides about blocks.

    Raises InputError for a gate that is not understood.
    """
    from accelsweep.analysis.compare_sweeps import parse_gate
    from accelsweep.planning.checked_grid import usual_name

    gate = parse_gate(request.fail_if) if request.fail_if is not None else None
    if gate is not None and request.until_decided and not any(map(_is_threshold, request.overrides)):
        decides = f"analysis.threshold={gate.threshold:g}"  # else blocks would be spent on another question
        request = replace(request, overrides=(*request.overrides, decides))
    return replace(request, name=request.name or usual_name(home, request.overrides))


def _is_threshold(override: str) -> bool:
    return override.lstrip("+").partition("=")[0] == "analysis.threshold"

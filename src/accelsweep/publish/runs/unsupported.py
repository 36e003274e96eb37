"""Settings that cannot run, in MLflow: one grey group at the end of the list, which holds them with their reasons.

MLflow draws a failed run in red. A setting that cannot run here is an answer and no failure, so it is `FINISHED`, and
folded away below the group. The group and its settings have a kind of their own: no search for `cell` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsweep.base.documents import canonical_json, sha256_text
from accelsweep.core.cells.cell import in_words
from accelsweep.core.planned.plans import PlannedCell
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.publish.runs.wanted import NOTE, Wanted, milliseconds, tags
from accelsweep.publish.snapshot import Snapshot

GROUP_KEY = "group:unsupported"
SETTING_KIND = "unsupported"
_GROUP_KIND = "group"
_GREY = {"mlflow.runColor": "#8f8f8f"}
"""The colour that MLflow's page gives the run wherever it draws one."""

_MOST_NAMED = 20


def unsupported_reason(snapshot: Snapshot, cell: PlannedCell) -> str | None:
    """Return why a setting cannot run, as the plan or each of its finished repeats says, or None where it may run."""
    if cell.unsupported is not None:
        return cell.unsupported
    runs = snapshot.runs_of.get(cell.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    if not finished or any(run in snapshot.running for run in runs):
        return None
    if any(item.outcome is not Outcome.unsupported for item in finished):
        return None
    return next((item.reason for item in finished if item.reason), "its record gives no reason")


def group_run(snapshot: Snapshot) -> Wanted | None:
    """Return the run above all settings that cannot run, or None where each can.

    It begins before every other run of the sweep, since MLflow's list shows the latest run first.
    """
    settings: dict[str, list[str]] = {}
    for cell in snapshot.manifest.cells:
        if (why := unsupported_reason(snapshot, cell)) is not None:
            settings.setdefault(why, []).append(in_words(cell.axes))
    if not settings:
        return None
    name = f"cannot run here ({sum(map(len, settings.values()))})"
    words = tags({"kind": _GROUP_KIND, "mlflow.source.name": "accelsweep", NOTE: _note(settings)}) | _GREY
    begun = before_all(snapshot)
    return Wanted(
        key=GROUP_KEY,
        name=name,
        source=GROUP_KEY,
        digest=sha256_text(canonical_json([name, words])),
        status="FINISHED",
        started=begun,
        ended=begun,
        tags=words,
    )


def before_all(snapshot: Snapshot) -> int:
    """Return a time before the plan and before every run, in milliseconds since 1970."""
    starts = [milliseconds(item.started_at) for item in snapshot.finished.values()]
    starts += [milliseconds(item.since) for item in snapshot.running.values()]
    return min([snapshot.planned, *starts]) - 1


def _note(settings: Mapping[str, Sequence[str]]) -> str:
    """Return each reason once, with the settings that it keeps from running."""
    lines = [f"* {why}: {_listed(names)}" for why, names in settings.items()]
    return "\n".join(["These settings cannot run here, so they were not measured.", "", *lines])


def _listed(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return "; ".join([*names[:_MOST_NAMED], *more])

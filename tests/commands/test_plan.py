"""`accelsweep plan` as it is printed: what disturbs runs is told where there are runs left to disturb."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.commands.planning import shown
from accelsweep.commands.planning.shown import show_plan
from accelsweep.measure.surroundings import busy_now
from accelsweep.plan.make import Plan, make_plan
from accelsweep.plan.table import PlanTable, plan_table


def test_others_at_work_are_told_of_before_runs_and_not_where_none_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_now, "busy_now", lambda: ["somebody works here"])
    plan = make_plan(tmp_path, ["experiment=quickstart"])
    show_plan(tmp_path, plan)
    assert "warning: somebody works here: stop them, or they will disturb the runs" in capsys.readouterr().out
    monkeypatch.setattr(shown, "table_of", _all_settled)
    show_plan(tmp_path, plan)
    assert "somebody works here" not in capsys.readouterr().out


def _all_settled(_: Path, plan: Plan) -> PlanTable:
    return plan_table(plan, plan.manifest.wanted_runs())

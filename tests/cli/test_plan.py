"""`accelsweep plan` reports other work on the machine if there are runs left to disturb."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.driver import plan_preview
from accelsweep.driver.plan_preview import show_plan
from accelsweep.measure import busy_now
from accelsweep.planning.cost_estimate import PlanTable, plan_table
from accelsweep.planning.plan import Plan, make_plan


def test_other_work_is_reported_only_if_runs_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_now, "busy_now", lambda: ["somebody works here"])
    plan = make_plan(tmp_path, ["experiment=quickstart"])
    show_plan(tmp_path, plan)
    assert "warning: somebody works here: stop them, or they will disturb the runs" in capsys.readouterr().out
    monkeypatch.setattr(plan_preview, "preview_table", _all_settled)
    show_plan(tmp_path, plan)
    assert "somebody works here" not in capsys.readouterr().out


def _all_settled(_: Path, plan: Plan) -> PlanTable:
    return plan_table(plan, plan.manifest.wanted_runs())

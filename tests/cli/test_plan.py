"""`accelsweep plan` reports other work on the machine if there are runs left to disturb."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.driver import plan_preview
from accelsweep.driver.plan_preview import preview_plan
from accelsweep.driver.request import Request
from accelsweep.measure.busy_now import OtherLoad
from accelsweep.planning.cost_estimate import PlanTable, plan_table
from accelsweep.planning.plan import Plan


def test_other_work_is_reported_only_if_runs_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherLoad, "sentences", lambda _: ["somebody works here"])
    request = Request(("experiment=quickstart",))
    preview_plan(tmp_path, request)
    assert "warning: somebody works here: stop them, or they will disturb the runs" in capsys.readouterr().out
    monkeypatch.setattr(plan_preview, "preview_table", _all_settled)
    preview_plan(tmp_path, request)
    assert "somebody works here" not in capsys.readouterr().out


def _all_settled(_: Path, plan: Plan, rows: int | None = None) -> PlanTable:
    return plan_table(plan, plan.manifest.wanted_runs(), rows=rows)

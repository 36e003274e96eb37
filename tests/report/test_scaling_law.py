"""The scaling law in a report: a table, and a dotted line next to its series."""

from __future__ import annotations

import pytest

from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import DeviceCount, Findings, LawForm, ScalingLaw
from accelsweep.report.figures.figure import Figure
from accelsweep.report.figures.scaling import efficiency_figure, scaling_figure
from accelsweep.report.markdown import table_text
from accelsweep.report.report_files import render_svg
from accelsweep.report.report_tables import build_tables
from accelsweep.report.table_model import to_csv


@pytest.fixture
def with_law(findings: Findings) -> Findings:
    number = Estimate(value=0.1, low=0.0, high=0.25, unit="1", confidence=0.975, count=3)
    law = ScalingLaw(
        series="batch 32, 32-bit",
        kind="weak",
        devices=(1, 2),
        form=LawForm.ideal,
        contention=number,
        coherency=number.model_copy(update={"value": 0.0, "high": 0.0025}),
        misfit=0.012,
        speedups=(1.0, 1.82),
        pays=DeviceCount(value=7, low=2, high=None),
        peak=DeviceCount(value=None, low=9, high=None),
    )
    return findings.model_copy(update={"laws": (law,)})


def test_a_law_is_a_row_with_its_intervals_and_where_further_devices_stop_paying(
    findings: Findings, with_law: Findings
) -> None:
    assert "scaling_law" not in [table.name for table in build_tables(findings)]
    (table,) = [table for table in build_tables(with_law) if table.name == "scaling_law"]
    assert [entry.text for entry in table.rows[0]] == [
        "batch 32, 32-bit",
        "1, 2",
        "indistinguishable from ideal scaling",
        "0.1 [0.0, 0.3]",
        "0.000 [0.000, 0.003]",
        "7 [2, no end]",
        "never [9, never]",
    ]
    assert "off by at most 1.2 %" in table_text(table)
    assert "contention.low" in to_csv(table.data).splitlines()[0]


def test_the_law_of_a_series_is_a_dotted_line_next_to_the_measurements(findings: Findings, with_law: Findings) -> None:
    drawn, share = scaling_figure(with_law), efficiency_figure(with_law)
    assert isinstance(drawn, Figure)
    assert isinstance(share, Figure)
    assert [row["law"] for row in drawn.rows] == [1.0, 1.82, None, None]
    assert [row["law"] for row in share.rows] == [1.0, 0.91, None, None]
    assert 'stroke-dasharray="1,3"' in render_svg(drawn)
    plain = scaling_figure(findings)
    assert isinstance(plain, Figure)
    assert 'stroke-dasharray="1,3"' not in render_svg(plain)

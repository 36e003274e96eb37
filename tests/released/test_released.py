"""A sweep that any released version wrote is read by this one, with the numbers that were found then."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from released import PACKED, unpacked

import accelsweep
from accelsweep.cli.runs import listed
from accelsweep.cli.status import print_status
from accelsweep.cli.sweeps import compare_sweeps
from accelsweep.commands.exchange.archives import export_sweep, import_archive
from accelsweep.driver.finalize import report
from accelsweep.executor.result_reuse import Present, audit
from accelsweep.planning.plan import make_plan
from accelsweep.records.findings import Findings
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Outcome

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
COUNTS = {Outcome.measured: 6, Outcome.out_of_memory: 6}


def test_every_released_version_has_its_sweep_here():
    versions = re.findall(r"^## ([0-9][0-9.]*) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {f"{version}.tar.gz" for version in versions} == {path.name for path in PACKED}


@pytest.fixture(params=PACKED, ids=[path.name.removesuffix(".tar.gz") for path in PACKED])
def old(request, tmp_path):
    """A sweep as a released version left it, in a folder of its own."""
    return unpacked(request.param, tmp_path)


def numbers(findings: Findings) -> dict[str, list[float | None]]:
    """Rate, speed-up and quality of each setting, each with the ends of its interval."""
    return {
        cell.cell: [
            number
            for found in (cell.rate, cell.speedup and cell.speedup.ratio, cell.quality)
            if found is not None
            for number in (found.value, found.low, found.high)
        ]
        for cell in findings.cells
    }


def test_its_report_has_the_numbers_that_were_found_then(old):
    then = Findings.read(old.findings)
    old.findings.unlink()
    page = report(old.home, [old.name])
    now = Findings.read(old.findings)
    assert numbers(now).keys() == numbers(then).keys()
    assert sum(map(len, numbers(then).values())) >= 15, "two rates, a speed-up and two qualities, with their intervals"
    for cell, found in numbers(then).items():
        assert numbers(now)[cell] == pytest.approx(found, rel=1e-5)
    assert (now.baseline, now.outcomes) == (then.baseline, then.outcomes)
    assert "out of memory" in page.read_text()


def test_its_state_and_its_runs_are_listed(old, capsys):
    assert print_status(old.home, old.name) == 0
    assert "old: 12 runs planned on cpu x1, 12 settled (6 measured, 6 out_of_memory)" in capsys.readouterr().out
    outcomes = [row.outcome for row in listed(old).runs]
    assert {outcome: outcomes.count(outcome) for outcome in set(outcomes)} == {**COUNTS, Outcome.unsupported: 4}
    assert not list(old.root.rglob("*.damaged-*"))


def test_it_is_compared_with_itself(old, capsys):
    assert compare_sweeps(old.home, old.name, old.name, None) == 0
    assert "1.0x" in capsys.readouterr().out


def test_it_is_opened_in_a_notebook_with_its_raw_steps(old):
    sweep = accelsweep.open(old.root)
    measured = sweep.runs[sweep.runs.outcome == "measured"]
    assert len(measured) == 6
    assert (sweep.steps(measured.run.iloc[0]).phase == "window").sum() >= 20


def test_it_goes_through_an_archive(old, tmp_path, capsys):
    report(old.home, [old.name])
    archive = export_sweep(old.home, old.name, None)
    (tmp_path / "there").mkdir()
    brought = import_archive(tmp_path / "there", archive, None)
    assert "byte for byte" in capsys.readouterr().out
    assert numbers(Findings.read(brought.findings)) == numbers(Findings.read(old.findings))


def test_it_goes_on_with_the_same_settings_and_blocks(old):
    manifest = Manifest.read(old.manifest)
    plan = make_plan(old.home, manifest.overrides, name=old.name)
    assert not plan.new_blocks
    assert [cell.name for cell in plan.cells] == [cell.name for cell in manifest.cells]
    assert plan.manifest.blocks == manifest.blocks


def test_its_runs_stand_or_the_machine_and_the_packages_say_why_not(old):
    present = Present(old.home)
    for run in Manifest.read(old.manifest).wanted_runs():
        why = present.why_again(read_record(old, run))
        assert why is None or re.fullmatch(r"((hardware|software) \w+: [^;]+ then, [^;]+ now(; )?)+", why), why
    found = audit(old)
    assert (found.reopened, found.damaged, found.unsettled) == ((), (), ())

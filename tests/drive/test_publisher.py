"""What the head does with a publisher that a signal ends early."""

from __future__ import annotations

import signal
import sys

import pytest
from patience import until

from accelsweep.base.documents import sha256_file
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.children import publisher
from accelsweep.drive.children.processes import Child
from accelsweep.publish.snapshot import report_digest
from accelsweep.publish.state import Copied, remember, run_digests
from accelsweep.state.folders import SweepFolder
from accelsweep.state.tail import last_lines

STRUCK = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), {})"
"""A shell that puts the tests into the background lets all their children ignore SIGINT."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(("struck", "told"), [(2, 0), (9, 1)])
def test_publishers_that_signals_end_early_are_followed_by_others_a_few_times(
    example_sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, struck: int, told: int
) -> None:
    left = [STRUCK.format(int(number))] * struck

    def start(folder: SweepFolder, *_options: str | None) -> Child:
        return Child.start(
            [sys.executable, "-c", left.pop() if left else "pass"], cwd=folder.home, log=folder.publish_log
        )

    monkeypatch.setattr(publisher, "_start", start)
    monkeypatch.setattr(publisher, "_has_all", lambda *_: False)
    lines: list[str] = []
    publisher.finish(start(example_sweep), example_sweep, None, lines.append)
    assert len(lines) == told
    assert all("accelsweep publish" in line for line in lines)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("print('MLflow is away; the sweep goes on'); print('later'); input()", ["MLflow is away; the sweep goes on"]),
        ("print('3 runs'); input()", []),
        ("print('3 runs')", []),
        ("print('error: no password'); exit(1)", ["no password; the sweep goes on"]),
    ],
)
def test_what_keeps_a_publisher_from_its_work_is_told_while_it_works_and_what_it_does_is_not(
    example_sweep: SweepFolder, script: str, told: list[str]
) -> None:
    script = script.replace("input()", "import sys, time; sys.stdout.flush(); time.sleep(60)")
    with Child.start([sys.executable, "-c", script], cwd=example_sweep.home, log=example_sweep.publish_log) as child:
        until(lambda: not child.running() or ("sleep" in script and bool(last_lines(child.log))))
        assert publisher.complaints(child) == told
        child.kill()


def test_the_last_line_leads_to_mlflow_only_where_everything_is_there(example_sweep: SweepFolder) -> None:
    name, uri = example_sweep.name, "http://me:hunter2@mlflow.example"
    assert publisher.last_line(example_sweep, None) == f"MLflow has not got everything: accelsweep publish {name}"
    records = {path.parent.name: sha256_file(path) for path in example_sweep.root.glob("runs/*/record.json")}
    digests = run_digests(Manifest.read(example_sweep.manifest), records)
    copied = Copied(experiment_id="1", active_runs=0, records=digests, report=report_digest(example_sweep), views=True)
    remember(example_sweep, uri, copied)
    assert publisher.last_line(example_sweep, uri) == (
        "MLflow: accelsweep ui --tracking-uri 'http://***@mlflow.example'"
    )

"""What the head does with a publisher that a signal ends early."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import pytest
from polling import until

from accelsweep.driver import background_processes
from accelsweep.driver.background_processes import Child
from accelsweep.files import sha256_file, tail_lines
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.published_state import PublishedCopy, remember_copy, run_digests
from accelsweep.tracking.snapshot import report_digest

STRUCK = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), {})"
"""A shell that puts the tests into the background lets all their children ignore SIGINT."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(("struck", "told"), [(2, 0), (9, 1)])
def test_publishers_that_signals_end_early_are_followed_by_others_a_few_times(
    example_sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, struck: int, told: int,
    last_line: Callable[[str, str], None],
) -> None:  # fmt: skip
    left = [STRUCK.format(int(number))] * struck

    def start(folder: SweepFolder, *_options: str | None) -> Child:
        return Child.start(
            [sys.executable, "-c", left.pop() if left else "pass"], cwd=folder.home, log=folder.publish_log
        )

    monkeypatch.setattr(background_processes, "_start", start)
    monkeypatch.setattr(background_processes, "_has_all", lambda *_: False)
    background_processes.finish(start(example_sweep), example_sweep, None)
    line, copied = background_processes.last_line(example_sweep, None)
    assert not copied
    assert (f"the process that copies was ended by {number.name}" in line) is bool(told)
    assert line.endswith(f"To catch up: accelsweep publish {example_sweep.name}")
    if told:
        last_line(f"publishing interrupted by {number.name}, again and again", line)


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
        until(lambda: not child.running() or ("sleep" in script and bool(tail_lines(child.log))))
        assert background_processes.complaints(child) == told
        child.kill()


def test_the_last_line_leads_to_mlflow_only_where_everything_is_there(example_sweep: SweepFolder) -> None:
    name, uri = example_sweep.name, "http://me:hunter2@mlflow.example"
    assert background_processes.last_line(example_sweep, None) == (
        f"MLflow has not got everything: nothing was copied yet. To catch up: accelsweep publish {name}",
        False,
    )
    records = {path.parent.name: sha256_file(path) for path in example_sweep.root.glob("runs/*/record.json")}
    digests = run_digests(Manifest.read(example_sweep.manifest), records)
    copied = PublishedCopy(experiment_id="1", active_runs=0, records=digests, report=report_digest(example_sweep))
    remember_copy(example_sweep, uri, copied)
    assert background_processes.last_line(example_sweep, uri) == (
        "MLflow: accelsweep ui --tracking-uri 'http://***@mlflow.example'",
        True,
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "error: /w/mlflow.db: MLflow's store is damaged. All records are safe",
            "/w/mlflow.db: MLflow's store is damaged",
        ),
        ("MLflow at http://h does not answer (gone); the sweep goes on", "MLflow at http://h does not answer (gone)"),
        ("3 runs\n\nerror: no room\n\n", "no room"),
    ],
)
def test_the_last_line_holds_the_last_reason_that_the_publisher_gave(
    example_sweep: SweepFolder, said: str, reason: str, last_line: Callable[[str, str], None]
) -> None:
    example_sweep.publish_log.parent.mkdir(exist_ok=True)
    example_sweep.publish_log.write_text(said)
    line, copied = background_processes.last_line(example_sweep, None)
    assert f"MLflow has not got everything: {reason}" in line
    assert line.endswith(". To catch up: accelsweep publish example")
    assert not copied
    last_line(f"publishing ended by {reason.partition(':')[2] or reason}", line)


def test_where_mlflow_is_not_installed_nobody_waits_for_a_copy(
    example_sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    line, copied = background_processes.last_line(example_sweep, None)
    assert "it is not installed here (pip install mlflow)" in line
    assert copied


def test_a_store_that_only_a_new_copy_mends_is_offered_no_other_command(example_sweep: SweepFolder) -> None:
    refusal = "mlflow.db is damaged; accelsweep publish example --anew sets it aside and fills a new one"
    example_sweep.publish_log.parent.mkdir(parents=True, exist_ok=True)
    example_sweep.publish_log.write_text(f"error: {refusal}\n")
    line, copied = background_processes.last_line(example_sweep, None)
    assert line == f"MLflow has not got everything: {refusal}"
    assert not copied

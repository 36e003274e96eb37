"""A publisher that something kills is followed by another one, so that the sweep's copy is whole at its end."""

from __future__ import annotations

import os
import signal
import sqlite3

import psutil
import pytest

from accelsweep.drive import publishing
from accelsweep.drive.publishing import Publishing


def publishers():
    return [child for child in psutil.Process().children() if "accelsweep.publish" in child.cmdline()]


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def copies(home):
    with sqlite3.connect(home / "mlflow.db") as database:
        return database.execute("SELECT count(*) FROM tags WHERE key = 'mlflow.parentRunId'").fetchone()[0]


@pytest.mark.real
def test_a_killed_publisher_is_replaced_at_the_sweeps_end(example_sweep, capsys):
    with Publishing(example_sweep, None) as running:
        kill(running._child._process)
        running.finish()
    assert "MLflow has not got everything" not in capsys.readouterr().err
    assert copies(example_sweep.home) >= 23


@pytest.mark.real
def test_a_killed_publisher_is_replaced_while_the_sweep_runs_but_not_at_once(example_sweep, monkeypatch):
    with Publishing(example_sweep, None) as running:
        (first,) = publishers()
        running.look()
        assert publishers() == [first], "one that lives is left alone"
        kill(running._child._process)
        running.look()
        assert publishers() == [], "what killed it may still be there"
        monkeypatch.setattr(publishing, "PAUSE_SECONDS", 0.0)
        running.look()
        (second,) = publishers()
        assert second.pid != first.pid

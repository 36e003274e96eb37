"""`doctor`'s short job on slow disks and with little time; tests/slurm runs a real one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelsweep.cli import doctor
from accelsweep.cli.doctor import CheckResult, try_jobs
from accelsweep.config.site import Site, Slurm
from accelsweep.devices.device_kind import Device
from accelsweep.schedulers.protocol import Resources
from accelsweep.schedulers.slurm import SlurmScheduler

FOUND = json.dumps({"checks": [{"ok": True, "what": "torch on n1", "found": "2.13.0, no GPU", "remedy": None}]})
OUT_OF_TIME = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-23T10:00:00 DUE TO TIME LIMIT ***"


@dataclass(frozen=True)
class Delayed(SlurmScheduler):
    """A scheduler whose jobs end at once, and whose log with the line `says` is seen here after `seconds`."""

    says: str = ""
    seconds: float = 0.0

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        del command
        assert needs.minutes == 2, "what a block has to start"
        return str(log)

    def state(self, number: str) -> str | None:
        return None

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        write = f'(sleep {self.seconds}; printf \'%s\\n\' "$1" > "$0") > /dev/null 2>&1 &'
        return ("sh", "-c", write, *numbers, self.says)


def told(monkeypatch: pytest.MonkeyPatch, home: Path, says: str, seconds: float) -> list[CheckResult]:
    cpu = Device(accelerator="cpu", model="m", count=8)
    site = Site(name="box", scheduler="slurm", inventory=(cpu,), slurm=Slurm())
    monkeypatch.setattr(doctor, "scheduler_of", lambda _site: Delayed(site, says=says, seconds=seconds))
    monkeypatch.setattr(doctor, "_POLL_SECONDS", 0.05)
    return list(try_jobs(site, home, 1.0))


def test_a_log_that_appears_late_on_a_shared_disk_is_awaited_and_removed(monkeypatch, tmp_path) -> None:
    ran, torch = told(monkeypatch, tmp_path, FOUND, 0.5)
    assert ran.what.startswith("a short job of 1 node, 8 CPUs per node, the partition's default memory, at most 2")
    assert ran.found.endswith(" ran")
    assert torch.what == "torch on n1"
    assert list(tmp_path.glob("*.log")) == []


def test_a_job_that_wrote_nothing_is_reported_after_a_while(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(doctor, "_MAX_FILE_DELAY_SECONDS", 0.2)
    (check,) = told(monkeypatch, tmp_path, FOUND, 1.0)
    assert "wrote nothing to" in check.found


def test_a_job_that_reached_its_time_limit_gets_no_advice_about_modules(monkeypatch, tmp_path) -> None:
    (check,) = told(monkeypatch, tmp_path, OUT_OF_TIME, 0.0)
    assert "DUE TO TIME LIMIT" in check.found
    assert "2 minutes were not enough" in str(check.remedy)
    (check,) = told(monkeypatch, tmp_path, "bash: module: command not found", 0.0)
    assert "site.slurm.modules" in str(check.remedy)

"""A working directory as a user has it, with a small experiment, and accelsweep started as a user starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import psutil
from polling import PATIENCE_SECONDS

from accelsweep.records.file_lock import live_lock

REPOSITORY = Path(__file__).resolve().parents[2]

TINY = """\
# @package _global_
hydra:
  sweeper:
    params:
      batch_size: 16,32
accelerator: cpu
threads: 1
baseline: {batch_size: 16}
repeats: 2
measure:
  warmup_steps: 3
  min_steps: 10
  max_steps: 40
  min_seconds: 0.05
  quality_samples: null
"""


MODULES = {
    "cli": {"accelsweep", "accelsweep.features.detach.driver"},
    "snakemake": {"snakemake", "accelsweep.driver.snakemake_main"},
    "publisher": {"accelsweep.tracking.live_publishing"},
    "executor": {"accelsweep.executor", "accelsweep.executor.fork_server"},
}
"""The modules of each kind of process that drives a sweep: `python -m MODULE ...`.

To the executors belong the jobs that ask for them, and the process that they are forked from.
"""


class Home:
    """A user's working directory; `environment` is added to its processes' environment."""

    @classmethod
    def of_a_finished_command(cls, path: Path, **environment: str) -> tuple[Home, subprocess.CompletedProcess[str]]:
        """Return the home at `path` and how the command ended that another process ran there and passed to `keep`."""
        code, _, output = (path / "ended.txt").read_text("utf-8").partition("\n")
        return cls(path / "home", **environment), subprocess.CompletedProcess([], int(code), output, None)

    def __init__(self, path: Path, **environment: str) -> None:
        self.path = path
        self.environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"} | environment

    def experiment(self, name: str, text: str) -> None:
        file = self.path / "conf" / "experiment" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def module(self, name: str, text: str) -> None:
        (self.path / f"{name}.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "accelsweep", *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_heed_ctrl_c,  # noqa: PLW1509 - tests have one thread
        )

    def accelsweep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, output, None)

    def keep(self, ended: subprocess.CompletedProcess[str]) -> None:
        """Write down beside the home how a command ended, for `of_a_finished_command` in another process."""
        (self.path.parent / "ended.txt").write_text(f"{ended.returncode}\n{ended.stdout}", "utf-8")

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake alone, with our Snakefile, in a fork of a process that has imported it."""
        line = _for_snakemake(arguments)
        with forked.start("snakemakes", *line, cwd=self.path, environment=self.environment) as process:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
            return subprocess.CompletedProcess(line, process.wait(), output, None)

    def fresh_snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake alone as its users start it."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *_for_snakemake(arguments)],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def files(self) -> dict[str, int]:
        """Every file below the home with its time of change, caches apart."""
        ignored = {".snakemake", "__pycache__"}
        found = {}
        for path in sorted(self.path.rglob("*")):
            if ignored.isdisjoint(path.relative_to(self.path).parts) and path.is_file():
                with contextlib.suppress(FileNotFoundError):  # a sweep that goes on has files for a moment only
                    found[str(path.relative_to(self.path))] = path.stat().st_mtime_ns
        return found

    def records(self, sweep: str) -> dict[str, int]:
        return {
            name: stamp
            for name, stamp in self.files().items()
            if name.startswith(f"sweeps/{sweep}/runs/") and name.endswith("/record.json") and "/attempts/" not in name
        }

    def end_processes(self) -> None:
        """Kill all processes that drive a sweep here: a failed test must not leave anything running."""
        for pid in self.processes(*MODULES):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def processes(self, *kinds: str) -> list[int]:
        """The processes of these `MODULES` that work here, and their forks: an executor's ranks, too."""
        wanted = set().union(*(MODULES[kind] for kind in kinds))
        return [
            process.pid
            for process in psutil.process_iter(["cwd", "cmdline", "status"])
            if process.info["cwd"] == str(self.path)
            and process.info["status"] != psutil.STATUS_ZOMBIE
            and "-m" in (words := process.info["cmdline"] or [])[1:3]
            and words[words.index("-m") + 1] in wanted
        ]

    def executors(self) -> list[int]:
        """The processes that hold a block of a sweep here."""
        holds = (live_lock(path) for path in self.path.glob("sweeps/*/blocks/*.lock.json"))
        return [hold.pid for hold in holds if hold is not None]


def _for_snakemake(arguments: tuple[str, ...]) -> list[str]:
    local = REPOSITORY / "workflows" / "profiles" / "local"
    return ["--snakefile", str(REPOSITORY / "Snakefile"), "--profile", str(local), *arguments]


def _heed_ctrl_c() -> None:
    # A shell's background job, as some runners of tests are, hands down that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

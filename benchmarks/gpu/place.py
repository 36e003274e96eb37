"""The place of the acceptance: its device, full or small size, and how its sweeps are run by the command line.

A user gets the command and its files, and so do the checks. Only the simulated device and the fork server are ours.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from board import Board
from checks import CannotApply

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Record:
    """A run's record as read from the disk, with its folder."""

    folder: Path
    body: dict[str, Any]

    @property
    def outcome(self) -> str:
        """`measured`, `out_of_memory`, ..."""
        return str(self.body["outcome"])

    @property
    def doubts(self) -> list[str]:
        """The codes of its doubts."""
        return [doubt["code"] for doubt in self.body["doubts"]]

    def metric(self, name: str) -> float | None:
        """Return a metric's value, or None where it has a reason instead."""
        found = self.body["metrics"].get(name)
        return None if found is None else found["value"]

    def seen(self, name: str) -> float:
        """Return a metric that must be there. Raises LookupError with the record's reason if it is absent."""
        value = self.metric(name)
        if value is None:
            why = (self.body["metrics"].get(name) or {}).get("reason")
            raise LookupError(f"{self.body['axes']} has no {name}: {why or self.body['reason']}")
        return value

    def window_steps(self) -> list[float]:
        """Return the seconds of each step of rank 0 inside the window."""
        table = pq.read_table(self.folder / "steps.parquet", columns=["rank", "phase", "step_seconds"]).to_pylist()
        return [row["step_seconds"] for row in table if row["rank"] == 0 and row["phase"] != "warmup"]


@dataclass(frozen=True)
class Place:
    """A home (working directory of accelsweep) and a device. `small` shrinks every workload to seconds on two cores."""

    home: Path
    device: str
    small: bool

    @property
    def asynchronous(self) -> bool:
        """Whether work is queued on the device while the host runs ahead."""
        return self.device != "cpu"

    def board(self) -> Board:
        """Return the device's management interface. Raises CannotApply where it has none."""
        if self.device == "simulated":
            from simulated_board import SimulatedBoard

            return SimulatedBoard()
        if self.device != "cuda":
            raise CannotApply(f"a {self.device} device has no NVML")
        return Board()

    def prepare(self) -> None:
        """Put the acceptance's own kernels and modules into the home."""
        self.home.mkdir(parents=True, exist_ok=True)
        for file in (HERE / "home").glob("*.py"):
            shutil.copyfile(file, self.home / file.name)
        if self.device == "simulated":
            from simulated_board import make

            make(self.home / "device")

    def cases(self, cases: Mapping[str, Mapping[str, Any]]) -> None:
        """Make each case a value of the axis `case`: an overlay of the config, as a user writes one."""
        for name, overlay in cases.items():
            self._write(f"conf/case/{name}.yaml", overlay)
        experiment = {"defaults": [{"/case": None}, {"override /measure": "quick"}]}
        self._write("conf/experiment/cases.yaml", experiment)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("# @package _global_\n" + yaml.safe_dump(dict(content), sort_keys=False), "utf-8")

    def command(self, name: str, overrides: Sequence[str]) -> list[str]:
        """Return the command of a sweep on this device."""
        return [sys.executable, "-m", "accelsweep", "run", f"accelerator={self.device}", *overrides, "--name", name]

    def sweep(self, name: str, *overrides: str, seconds: float = 400.0) -> list[Record]:
        """Run a sweep and return its records in the order in which they were measured.

        Raises RuntimeError with the end of the output if the command fails or takes longer than `seconds`.
        """
        with self._command(name, overrides, beside_the_server()) as command:
            try:
                code = command.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -1
        if code != 0:
            end = (self.home / f"{name}.log").read_text("utf-8", "replace")[-1500:]
            raise RuntimeError(f"accelsweep run of {name} ended with {code}:\n{end}")
        return self.records(name)

    def records(self, name: str) -> list[Record]:
        """Return the records of a sweep in the order in which they were measured."""
        files = sorted((self.home / "sweeps" / name / "runs").glob("*/record.json"))
        found = [Record(file.parent, json.loads(file.read_text("utf-8"))["body"]) for file in files]
        return sorted(found, key=lambda record: record.body["started_at"])

    @contextmanager
    def started(self, name: str, *overrides: str) -> Iterator[subprocess.Popen[bytes]]:
        """Give a sweep that goes on while the caller works; its processes are stopped in the end.

        All of them are its own, as a user has them: no fork server of ours is behind it.
        """
        with self._command(name, overrides, {}) as command:
            yield command

    @contextmanager
    def _command(
        self, name: str, overrides: Sequence[str], variables: dict[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        with (self.home / f"{name}.log").open("wb") as output:
            command = subprocess.Popen(
                self.command(name, overrides),
                cwd=self.home,
                env=environment() | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield command
            finally:
                stop(command)


def environment() -> dict[str, str]:
    """Return the variables of every command: this checkout's accelsweep, and no telemetry."""
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "MLFLOW_DISABLE_TELEMETRY": "true"}


@cache
def beside_the_server() -> dict[str, str]:
    """Return the variables of a sweep whose runs are forked from one server: torch is imported once, not once a sweep.

    That saves some six seconds of each. The server ends with this process.
    """
    if sys.platform != "linux":
        return {}
    from accelsweep.driver.background_processes import start_fork_server
    from accelsweep.ipc import FORK_SERVER_VARIABLE

    with tempfile.NamedTemporaryFile(prefix="accelsweep-gpu-", suffix=".log", delete=False) as log:
        name, server = start_fork_server(ROOT, Path(log.name), environment())
    atexit.register(Path(log.name).unlink)
    atexit.register(server.terminate)
    return {FORK_SERVER_VARIABLE: name}


def stop(command: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """End a command as Ctrl-C would, and by force after `patience` seconds."""
    import signal

    for number in (signal.SIGINT, signal.SIGKILL):
        if command.poll() is None:
            os.killpg(command.pid, number)
            try:
                command.wait(patience)
            except subprocess.TimeoutExpired:
                continue


def wait_for(found: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Return the first true answer of `found`. Raises TimeoutError that names `what` if it did not come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.1)
    raise TimeoutError(f"{what} did not come within {seconds:g} s")

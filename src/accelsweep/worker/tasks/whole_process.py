"""`measure.scope: process`: runs the user's own command, whatever it is, and measures the whole process.

The command runs as a child of this process, in the same process group, so it is ended like a rank. Nothing in it is
hooked. A run is one sample: the time from the command's start to its exit.
"""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from accelsweep.devices import host, linux
from accelsweep.devices.clock import monotonic
from accelsweep.devices.kinds import kind_of
from accelsweep.errors import InputError
from accelsweep.measure import run_doubts
from accelsweep.measure.energy import EnergyMeter
from accelsweep.measure.machine_state import CpuUse, environment
from accelsweep.metrics import Metric
from accelsweep.run_config import THREADS_VARIABLE, TREE_VARIABLE
from accelsweep.run_environment import RunEnvironment
from accelsweep.significant_digits import SECONDS_PER_HOUR
from accelsweep.worker.entry_point import OFFLINE, TORCHRUN, command_words
from accelsweep.worker.error_classification import CommandFailed
from accelsweep.worker.rank_measurement import RankReport, cpu_doubts, foreign_cores_metric
from accelsweep.worker.rank_setup import STACKS_SIGNAL, RankPlace, VersionTree
from accelsweep.worker.run_spec import RunSpec

PYTHON_VARIABLE = "ACCELSWEEP_PROJECT_PYTHON"
"""The environment variable that names the interpreter of the user's Python script; unset for accelsweep's own."""

_QUOTED_LINES = 3

_QUOTED_BYTES = 4000

_SCOPE = "the command and the processes that it waited for"


class Ended(NamedTuple):
    """How a command ended; a negative exit code is that of a signal, and the last lines are those of its stderr."""

    code: int
    seconds: float
    usage: resource.struct_rusage
    last_lines: str


class WholeProcess:
    """Measures a run of the user's command."""

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` is the run, and `place` identifies this process, the only rank."""
        self._spec, self._place = spec, place

    def measure(self, report: RankReport) -> None:
        """Run the command and fill in the report. Raises InputError if the command cannot be started."""
        entry = self._spec.config.entry
        assert entry is not None, "the planning has checked"
        version_tree = VersionTree.from_environment()
        if version_tree is not None:
            os.chdir(version_tree.folders[0])
        words = command_words(self._spec, entry, self._place)
        report.files = tuple(sorted({str(Path(word)) for word in words if _is_in_project(word)}))
        if entry.kind != "command":
            words = [os.environ.get(PYTHON_VARIABLE, sys.executable), *words]
        accelerator = self._spec.config.accelerator
        kind = kind_of(accelerator)
        boards = tuple(gpu.identity for gpu in kind.gpus() or ()) if kind.telemetry is not None else ()
        cpu = CpuUse()
        report.environment["before"] = environment(boards, accelerator)
        with EnergyMeter(accelerator, boards) as energy:
            cpu.start()
            ended = run_command(words, self._environment())
            cpu.stop()
        report.environment["after"] = environment(boards, accelerator)
        if ended.code != 0:
            quoted = f": {ended.last_lines}" if ended.last_lines else ""
            report.record_error(CommandFailed(f"{shlex.join(words)} {_ending(ended.code)}{quoted}"))
            return
        report.metrics |= {**_metrics(ended), "energy_joules": energy.result}
        reading = {**cpu.reading, "ours": cpu.reading["ours"] + _cpu_seconds(ended.usage)}
        reading["major_faults"] += ended.usage.ru_majflt
        report.metrics["foreign_cpu_cores"] = foreign_cores_metric([reading])
        states = RunEnvironment(report.environment)
        governor = run_doubts.governor(states.before.governor)
        report.doubts += filter(None, [*cpu_doubts([reading], 1), governor])
        report.doubts += run_doubts.device_doubts(*states.around_the_window)

    def _environment(self) -> dict[str, str]:
        """Return the command's environment, in which it is no rank of ours."""
        ours = {*TORCHRUN, "NODE_RANK", TREE_VARIABLE, PYTHON_VARIABLE, "PYTHONSAFEPATH"}
        threads = {} if (count := self._spec.config.threads) is None else {THREADS_VARIABLE: str(count)}
        entry = self._spec.config.entry
        assert entry is not None, "the planning has checked"
        inherited = {name: value for name, value in os.environ.items() if name not in ours}
        return {**OFFLINE, **inherited, **threads, **entry.variables}


def run_command(words: list[str], environment: dict[str, str]) -> Ended:
    """Run a command to its end. Raises InputError if it cannot be started."""
    parent = os.getpid()
    with _stopped_with_command():
        began = monotonic()
        try:
            process = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=lambda: linux.die_with_parent(parent),  # noqa: PLW1509 - no thread runs yet
            )
        except OSError as error:
            raise InputError(f"{shlex.join(words)} cannot be started: {error.strerror or error}") from error
        assert process.stderr is not None, "started with a pipe"
        last = bytearray()
        forwarding = threading.Thread(target=_forward, args=(process.stderr.fileno(), last), daemon=True)
        forwarding.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = monotonic() - began
        process.returncode = code = os.waitstatus_to_exitcode(status)
        forwarding.join(1.0)  # a process that the command left behind may hold the pipe open
        return Ended(code, seconds, usage, _last_lines(last.decode("utf-8", "replace")))


@contextmanager
def _stopped_with_command() -> Iterator[None]:
    """Let the command end first if this process group is told to end, so that the command gets its time for that."""
    received: list[int] = []
    faulthandler.unregister(STACKS_SIGNAL)  # the stacks of this process say nothing about the command
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.signal(received[0], signal.SIG_DFL)
            os.kill(os.getpid(), received[0])


def _forward(pipe: int, last: bytearray) -> None:
    """Copy what the command writes to stderr, and keep the end of it in `last`."""
    while chunk := os.read(pipe, 1 << 16):
        os.write(2, chunk)
        last += chunk
        del last[:-_QUOTED_BYTES]


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return " | ".join(lines[-_QUOTED_LINES:])


def _is_in_project(word: str) -> bool:
    path = Path(word)
    return not path.is_absolute() and ".." not in path.parts and path.is_file()


def _ending(code: int) -> str:
    """Describe a failure. A shell's exit code above 128 stands for the signal that ended its last command."""
    number = -code if code < 0 else code - 128
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    # torch describes a killed loader worker in the same words, which show the executor that memory may have run out
    return f"{how} (killed by signal: {signal.strsignal(number)})" if number in {*signal.Signals} else how


def _cpu_seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _metrics(ended: Ended) -> dict[str, Metric]:
    clock = {"scope": "from the command's start to its exit", "provenance": "clock"}
    return {
        "process_seconds": Metric(value=ended.seconds, unit="s", **clock),
        "processes_per_hour": Metric(value=SECONDS_PER_HOUR / ended.seconds, unit="processes/h", **clock),
        "process_cpu_seconds": Metric(value=_cpu_seconds(ended.usage), unit="s", scope=_SCOPE, provenance="counter"),
        "process_peak_bytes": _peak(ended.usage, host.resident_bytes()),
    }


def _peak(usage: resource.struct_rusage, ours: int) -> Metric:
    """Return the peak memory. The counter begins at what this process, which is forked, holds: `ours`, in bytes."""
    peak, scope = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), f"the largest process among {_SCOPE}"
    if peak <= ours:
        reason = f"not above the {ours / 2**20:.0f} MiB at which the counter begins"
        return Metric(value=None, unit="B", reason=reason, scope=scope)
    return Metric(value=float(peak), unit="B", scope=scope, provenance="counter")

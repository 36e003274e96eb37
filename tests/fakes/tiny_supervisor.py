"""A real supervisor whose ranks behave, within milliseconds, as a test asks: measure, crash, hang, exit, fill memory.

`Supervised` plans a sweep whose cells name a behaviour (their `task`) and runs `python tiny_supervisor.py BLOCK`, as a
fork of a process that knows this module (forked.py). That is the code of `python -m accelsweep.executor`, with
`behave` in the place of a rank's body and nothing heavy to import.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
from patience import PATIENCE_SECONDS
from tiny_sweep import plan_sweep

from accelsweep.executor.block import main as supervise
from accelsweep.executor.launch import Launchers, call
from accelsweep.records import file_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Metric, Outcome, Record
from accelsweep.records.sweep_progress import Pulse
from accelsweep.worker.rank_setup import show_stacks_when_asked
from accelsweep.worker.run_spec import RankResult, RunSpec

HERE = Path(__file__).resolve()


@dataclass
class Supervised:
    """A planned sweep, and supervisors of its only block."""

    home: Path
    leases: Path
    folder: SweepFolder = field(init=False)
    block: Path = field(init=False)

    def plan(self, *tasks: str, **options: Any) -> Supervised:
        """Plan one cell per task; `options` go to `plan_sweep`, `devices` and the keys of `config` to every cell."""
        devices, config = options.pop("devices", 1), options.pop("config", {})
        cells = [{"act": task, "devices": devices, **config} for task in tasks]
        self.folder, self.block = plan_sweep(self.home, cells, **options)
        return self

    def start(self, *arguments: str, **environment: str) -> forked.Forked:
        """Start a supervisor of the block."""
        alone = {**os.environ, "ACCELSWEEP_LEASES": str(self.leases), **environment}
        return forked.start(HERE.stem, str(self.block), *arguments, cwd=self.home, environment=alone)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run a supervisor to its end; return its exit code and its output."""
        with self.start(*arguments, **environment) as process:
            return ended(process)

    def runs(self) -> list[str]:
        """Return the names of all planned runs."""
        return Manifest.read(self.folder.manifest).wanted_runs()

    def record(self, number: int = 0) -> Record:
        """Return the record of the planned run with this number."""
        return Record.read(self.folder.record(self.runs()[number]))

    def log(self, number: int = 0) -> str:
        """Return the run's log."""
        return (self.folder.run(self.runs()[number]) / "run.log").read_text()

    def attempt(self, run: int = 0, attempt: int = 1) -> Path:
        """Return the folder of an attempt."""
        return self.folder.run(self.runs()[run]) / "attempts" / str(attempt)


def ended(process: forked.Forked, seconds: float = PATIENCE_SECONDS) -> tuple[int, str]:
    """Wait for a supervisor's end; return exit code and output. Kill it, and its runs with it, after `seconds`."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.wait(), output


def result(rank: int, outcome: Outcome = Outcome.measured, kind: Any = "none", reason: str | None = None) -> RankResult:
    """Return a rank's result; a measured one has a rate."""
    rate = {"samples_per_second": Metric(value=100.0 + rank, unit="1/s")} if outcome is Outcome.measured else {}
    return RankResult(rank=rank, outcome=outcome, reason=reason, error_kind=kind, metrics=rate)


def tell(line: object) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def measured(spec: RunSpec, rank: int) -> None:
    """Leave the files of a rank that measured something."""
    spec.rank_steps(rank).write_bytes(b"steps of rank %d" % rank)
    result(rank).write(spec.rank_result(rank))


def slow(spec: RunSpec, rank: int) -> None:
    """Take half a second."""
    time.sleep(0.5)
    measured(spec, rank)


def lasting(spec: RunSpec, rank: int) -> None:
    """Take three seconds: long enough for a test to do something meanwhile."""
    time.sleep(3.0)
    measured(spec, rank)


def edit_source(spec: RunSpec, rank: int) -> None:
    """Be a user who saves a file while a run is going on."""
    Path("mine.py").write_text(f"# edited during {spec.run.name}\n")
    measured(spec, rank)


def segfault(spec: RunSpec, rank: int) -> None:
    """Die as native code dies."""
    tell("about to touch memory that is not ours")
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_three(spec: RunSpec, rank: int) -> None:
    """Leave as a careless script does."""
    sys.exit(3)


def raise_error(spec: RunSpec, rank: int) -> None:
    """Raise through everything."""
    raise ValueError("shapes 3 and 4 do not match; see https://user:hunter2@example.org/")


def silent(spec: RunSpec, rank: int) -> None:
    """End well and leave nothing."""


def garbled(spec: RunSpec, rank: int) -> None:
    """Leave a result that was cut short."""
    result(rank).write(spec.rank_result(rank))
    spec.rank_result(rank).write_bytes(spec.rank_result(rank).read_bytes()[:40])


def hang(spec: RunSpec, rank: int) -> None:
    """Wait for something that never comes."""
    time.sleep(1000)


def hang_at_first(spec: RunSpec, rank: int) -> None:
    """Hang in the first attempt, and measure in the second."""
    hang(spec, rank) if spec.attempt == 1 else measured(spec, rank)


def stubborn(spec: RunSpec, rank: int) -> None:
    """Hang and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def stall(spec: RunSpec, rank: int) -> None:
    """Do a step, say a line and do no other step, as in a read from a dead file server; so does a worker of it."""
    show_stacks_when_asked()
    Pulse(spec.pulse(rank)).beat()
    tell("the last line before the silence")
    if rank == 0 and os.fork() == 0:
        read_for_ever()
    read_for_ever()


def read_for_ever() -> None:
    """Wait in a read that never ends."""
    os.read(os.pipe()[0], 1)


def stall_deaf(spec: RunSpec, rank: int) -> None:
    """Do a step and no other one, under a handler of SIGTERM that does nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stall(spec, rank)


def second_rank_stalls(spec: RunSpec, rank: int) -> None:
    """Rank 1 does a step and no other one; rank 0 goes on, rests, and would wait for it for ever."""
    if rank == 1:
        stall(spec, rank)
    pulse = Pulse(spec.pulse(rank))
    for _ in range(3):
        pulse.beat()
    pulse.rest()
    hang(spec, rank)


def lively(spec: RunSpec, rank: int) -> None:
    """Do steps for two seconds."""
    pulse = Pulse(spec.pulse(rank))
    for _ in range(400):
        time.sleep(0.005)
        pulse.beat()
    measured(spec, rank)


def long_rest(spec: RunSpec, rank: int) -> None:
    """Do a step, and then for two seconds something that has no steps."""
    pulse = Pulse(spec.pulse(rank))
    pulse.beat()
    pulse.rest()
    time.sleep(2.0)
    measured(spec, rank)


def confess_on_sigterm(spec: RunSpec, rank: int) -> None:
    """Hang, and turn SIGTERM into an exception that is then reported, as Lightning does."""

    def report(*_: object) -> None:
        result(rank, Outcome.crashed, "user_exception", "SIGTERMException").write(spec.rank_result(rank))
        os._exit(1)

    signal.signal(signal.SIGTERM, report)
    time.sleep(1000)


def first_rank_dies(spec: RunSpec, rank: int) -> None:
    """Rank 0 is killed; its peers wait for it in a collective that ignores SIGTERM."""
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    stubborn(spec, rank)


def memory_on_rank_1(spec: RunSpec, rank: int) -> None:
    """Rank 1 runs out of memory; rank 0 sees its connection closed a little earlier than rank 1 reports."""
    if rank == 0:
        result(rank, Outcome.crashed, "collective", "Connection closed by peer").write(spec.rank_result(rank))
        sys.exit(1)
    time.sleep(0.3)
    result(rank, Outcome.out_of_memory, "out_of_memory", "CUDA out of memory").write(spec.rank_result(rank))
    sys.exit(1)


def holds(spec: RunSpec, rank: int) -> None:
    """Hold a batch of `holds:N` samples at most, on rank 1 one less; `holds:N:WAY` is the way in which more ends it."""
    batch, (_, most, *way) = spec.config.batch_size, spec.config.raw["act"].split(":")
    if batch > int(most) - rank:
        _end_for_memory(spec, rank, *way)
    numbers = {"memory_limit_bytes": 4096.0, "peak_rank_bytes": 1000.0 + 10.0 * batch, "epoch_samples": 30.0}
    known = {name: Metric(value=value, unit="B", scope="machine memory") for name, value in numbers.items()}
    result(rank).model_copy(update={"metrics": known}).write(spec.rank_result(rank))


def _end_for_memory(spec: RunSpec, rank: int, way: str = "error") -> None:
    if way == "abort":
        tell("terminate called after throwing an instance of 'std::bad_alloc'")
        os.abort()
    if way == "segfault":
        segfault(spec, rank)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    result(rank, Outcome.out_of_memory, "out_of_memory", "no room").write(spec.rank_result(rank))
    sys.exit(0)


def talk(spec: RunSpec, rank: int) -> None:
    """Print 2 MB, with a first and a last line."""
    tell("the first line")
    for number in range(20000):
        tell(f"line {number} ".ljust(100, "."))
    tell("the last line")
    measured(spec, rank)


def flood(spec: RunSpec, rank: int) -> None:
    """Print for ever, faster than anybody reads."""
    while True:
        os.write(1, b"y\n" * 32768)


def leave_orphan(spec: RunSpec, rank: int) -> None:
    """Leave a process of its own session behind, whose id is in the log."""
    orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    tell(orphan.pid)
    measured(spec, rank)


def linger(spec: RunSpec, rank: int) -> None:
    """Leave a result and then hang while being torn down."""
    measured(spec, rank)
    hang(spec, rank)


def break_at_the_end(spec: RunSpec, rank: int) -> None:
    """Leave a result and then die."""
    measured(spec, rank)
    os.abort()


def kill_supervisor(spec: RunSpec, rank: int) -> None:
    """Take the supervisor down, as an exhausted machine would."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def show_place(spec: RunSpec, rank: int) -> None:
    """Print the rank's environment."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES")
    tell(" ".join(f"{name}={os.environ.get(name)}" for name in names))
    tell(f"group={os.getpgrp()} oom_score_adj={Path('/proc/self/oom_score_adj').read_text().strip()}")
    tell(f"stdin={Path('/proc/self/fd/0').readlink()} port={int(os.environ['MASTER_PORT']) > 0}")
    measured(spec, rank)


def behave(spec: RunSpec) -> None:
    """Do what the cell's `act` says; `act:N` may be told apart from other cells by N."""
    globals()[spec.config.raw["act"].partition(":")[0]](spec, int(os.environ["RANK"]))


def main() -> int:
    """Be one rank (after an exec) or the supervisor."""
    if sys.argv[1] == "--rank":
        return call(behave, RunSpec.read(Path(sys.argv[2])))
    file_lock.BEAT_SECONDS = float(os.environ.get("BEAT_SECONDS", "20"))  # a test beats faster
    launchers = Launchers(entry=behave, spawn_command=(sys.executable, str(HERE), "--rank"), preload=lambda: None)
    return supervise(launchers)


if __name__ == "__main__":
    sys.exit(main())

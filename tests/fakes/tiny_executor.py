"""A real executor with fake ranks that measure, crash, hang, exit or fill memory within milliseconds, as a test asks.

`TinyBlock` plans a sweep whose settings name a behaviour (`act`) and runs `python tiny_executor.py BLOCK`, forked from
a process that has imported this module (executors.py). It is the code of `python -m accelsweep.executor` with `behave`
as the rank's entry point, and no torch to import.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import forked
from polling import PATIENCE_SECONDS
from tiny_sweep import plan_sweep

from accelsweep.executor.block import main as run_executor
from accelsweep.executor.launch import Launcher
from accelsweep.files import write_json
from accelsweep.heartbeat import Heartbeat
from accelsweep.metrics import Metric
from accelsweep.plain_json import sha256_text
from accelsweep.records import file_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome, RankResult
from accelsweep.worker.forking import call
from accelsweep.worker.rank_setup import dump_stacks_on_signal
from accelsweep.worker.run_spec import RunSpec

HERE = Path(__file__).resolve()


@dataclass
class TinyBlock:
    """A planned sweep with one block, and executors of that block."""

    home: Path
    leases: Path
    folder: SweepFolder = field(init=False)
    block_file: Path = field(init=False)

    @property
    def name(self) -> str:
        """The block's name."""
        return self.block_file.stem

    def plan(self, *tasks: str, **options: Any) -> TinyBlock:
        """Plan one setting per task, each with `devices` and `config`; other `options` go to `plan_sweep`."""
        common = {"devices": options.pop("devices", 1), **options.pop("config", {})}
        return self.plan_settings(*({"act": task, **common} for task in tasks), **options)

    def plan_settings(self, *settings: dict[str, Any], **options: Any) -> TinyBlock:
        """Plan these settings; `options` go to `plan_sweep`."""
        self.folder, self.block_file = plan_sweep(self.home, list(settings), **options)
        return self

    def start(self, *arguments: str, **environment: str) -> forked.Forked:
        """Start an executor of the block."""
        isolated = {**os.environ, "ACCELSWEEP_LEASES": str(self.leases), **environment}
        return forked.start("executors", str(self.block_file), *arguments, cwd=self.home, environment=isolated)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run an executor to its end; return its exit code and its output."""
        with self.start(*arguments, **environment) as process:
            return ended(process)

    def runs(self) -> list[str]:
        """Return the names of all planned runs."""
        return Manifest.read(self.folder.manifest).wanted_runs()

    def record(self, number: int = 0) -> Record:
        """Return the record of a planned run."""
        return Record.read(self.record_file(number))

    def record_file(self, number: int = 0) -> Path:
        """Return the path of that record."""
        return self.folder.record(self.runs()[number])

    @property
    def done_file(self) -> Path:
        """The path of the block's done file."""
        return self.folder.done(self.name)

    @property
    def lock_file(self) -> Path:
        """The path of the block's lock."""
        return self.folder.lock(self.name)

    def log(self, number: int = 0) -> str:
        """Return the run's log."""
        return (self.folder.run(self.runs()[number]) / "run.log").read_text()

    def attempt(self, run: int = 0, attempt: int = 1) -> Path:
        """Return the folder of an attempt."""
        return self.folder.run(self.runs()[run]) / "attempts" / str(attempt)


def ended(process: forked.Forked, seconds: float = PATIENCE_SECONDS) -> tuple[int, str]:
    """Wait for an executor's end; return exit code and output. Kill it, and its runs with it, after `seconds`."""
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


def echo(line: object) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def measured(spec: RunSpec, rank: int) -> None:
    """Write the files of a rank that measured something."""
    steps = {
        "rank": rank,
        "warmup_steps": 1,
        "step_seconds": [0.5, 0.25],
        "samples": [8, 8],
        "train_loss": ["nan", None],
    }
    write_json(spec.rank_steps(rank), steps)
    result(rank).write(spec.rank_result(rank))


def brief(spec: RunSpec, rank: int) -> None:
    """Take a fifth of a second."""
    time.sleep(0.2)
    measured(spec, rank)


def slow(spec: RunSpec, rank: int) -> None:
    """Take half a second."""
    time.sleep(0.5)
    measured(spec, rank)


def lasting(spec: RunSpec, rank: int) -> None:
    """Take three seconds, so that a test can do something meanwhile."""
    time.sleep(3.0)
    measured(spec, rank)


def rate(spec: RunSpec, rank: int) -> None:
    """Measure a rate of `rate:N` samples per second, within half a percent."""
    measured(spec, rank)
    _, rate = spec.config.raw["act"].split(":")
    noise = int(sha256_text(spec.run.name)[:4], 16) / 0xFFFF - 0.5
    metrics = {"samples_per_second": Metric(value=float(rate) * (1.0 + 0.01 * noise), unit="1/s")}
    replace(result(rank), metrics=metrics).write(spec.rank_result(rank))


def disturbed(spec: RunSpec, rank: int) -> None:
    """Measure while others use the processor, in as many attempts as `disturbed:N` says."""
    measured(spec, rank)
    _, times = spec.config.raw["act"].split(":")
    if spec.attempt <= int(times):
        doubt = Doubt("busy_cpu", "other processes kept 1.40 of 2 cores busy while we used 0.60", "stop them")
        replace(result(rank), doubts=(doubt,)).write(spec.rank_result(rank))


def edit_source(spec: RunSpec, rank: int) -> None:
    """Edit a source file during the run."""
    Path("mine.py").write_text(f"# edited during {spec.run.name}\n")
    measured(spec, rank)


def segfault(spec: RunSpec, rank: int) -> None:
    """Die as native code does."""
    echo("about to touch memory that is not ours")
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_three(spec: RunSpec, rank: int) -> None:
    """Exit as a careless script does."""
    sys.exit(3)


def raise_error(spec: RunSpec, rank: int) -> None:
    """Raise an exception that nothing catches."""
    raise ValueError("shapes 3 and 4 do not match; see https://user:hunter2@example.org/")


def silent(spec: RunSpec, rank: int) -> None:
    """Exit with code 0 and no result."""


def garbled(spec: RunSpec, rank: int) -> None:
    """Write a truncated result."""
    result(rank).write(spec.rank_result(rank))
    spec.rank_result(rank).write_bytes(spec.rank_result(rank).read_bytes()[:40])


def hang(spec: RunSpec, rank: int) -> None:
    """Hang."""
    time.sleep(1000)


def hang_at_first(spec: RunSpec, rank: int) -> None:
    """Hang in the first attempt, and measure in the second."""
    hang(spec, rank) if spec.attempt == 1 else measured(spec, rank)


def stubborn(spec: RunSpec, rank: int) -> None:
    """Hang and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def stall(spec: RunSpec, rank: int) -> None:
    """Do one step, print a line, and hang in a read, as from a dead file server; a child process hangs too."""
    dump_stacks_on_signal()
    Heartbeat(spec.heartbeat(rank)).step()
    echo("the last line before the stall")
    if rank == 0 and os.fork() == 0:
        read_forever()
    read_forever()


def read_forever() -> None:
    """Hang in a read."""
    os.read(os.pipe()[0], 1)


def stall_deaf(spec: RunSpec, rank: int) -> None:
    """Stall, and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stall(spec, rank)


def second_rank_stalls(spec: RunSpec, rank: int) -> None:
    """Rank 1 stalls after one step; rank 0 does three, rests, and would wait for it forever."""
    if rank == 1:
        stall(spec, rank)
    heartbeat = Heartbeat(spec.heartbeat(rank))
    for _ in range(3):
        heartbeat.step()
    heartbeat.pause()
    hang(spec, rank)


def lively(spec: RunSpec, rank: int) -> None:
    """Do steps for two seconds."""
    heartbeat = Heartbeat(spec.heartbeat(rank))
    for _ in range(400):
        time.sleep(0.005)
        heartbeat.step()
    measured(spec, rank)


def long_rest(spec: RunSpec, rank: int) -> None:
    """Do a step, then two seconds of work without steps."""
    heartbeat = Heartbeat(spec.heartbeat(rank))
    heartbeat.step()
    heartbeat.pause()
    time.sleep(2.0)
    measured(spec, rank)


def confess_on_sigterm(spec: RunSpec, rank: int) -> None:
    """Hang, and report SIGTERM as an exception, as Lightning does."""

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
    """Fit a batch of at most N samples (`holds:N`), on rank 1 one less; `holds:N:WAY` says how a larger one fails."""
    batch, (_, most, *way) = spec.config.batch_size, spec.config.raw["act"].split(":")
    if batch > int(most) - rank:
        _end_for_memory(spec, rank, *way)
    numbers = {"memory_limit_bytes": 4096.0, "peak_rank_bytes": 1000.0 + 10.0 * batch, "epoch_samples": 30.0}
    metrics = {name: Metric(value=value, unit="B", scope="machine memory") for name, value in numbers.items()}
    replace(result(rank), metrics=metrics).write(spec.rank_result(rank))


def _end_for_memory(spec: RunSpec, rank: int, way: str = "error") -> None:
    if way == "abort":
        echo("terminate called after throwing an instance of 'std::bad_alloc'")
        os.abort()
    if way == "segfault":
        segfault(spec, rank)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    result(rank, Outcome.out_of_memory, "out_of_memory", "no room").write(spec.rank_result(rank))
    sys.exit(0)


def talk(spec: RunSpec, rank: int) -> None:
    """Print 2 MB between a first and a last line."""
    echo("the first line")
    for number in range(20000):
        echo(f"line {number} ".ljust(100, "."))
    echo("the last line")
    measured(spec, rank)


def flood(spec: RunSpec, rank: int) -> None:
    """Print forever, faster than anybody reads."""
    while True:
        os.write(1, b"y\n" * 32768)


def leave_orphan(spec: RunSpec, rank: int) -> None:
    """Leave a process in its own session behind, whose id is in the log."""
    orphan = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    echo(orphan.pid)
    measured(spec, rank)


def linger(spec: RunSpec, rank: int) -> None:
    """Write a result, then hang in teardown."""
    measured(spec, rank)
    hang(spec, rank)


def break_at_the_end(spec: RunSpec, rank: int) -> None:
    """Write a result, then die."""
    measured(spec, rank)
    os.abort()


def kill_executor(spec: RunSpec, rank: int) -> None:
    """Kill the executor, as a machine out of memory would."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def show_place(spec: RunSpec, rank: int) -> None:
    """Print the rank's environment."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES")
    echo(" ".join(f"{name}={os.environ.get(name)}" for name in names))
    echo(f"group={os.getpgrp()} oom_score_adj={Path('/proc/self/oom_score_adj').read_text().strip()}")
    echo(f"stdin={Path('/proc/self/fd/0').readlink()} port={int(os.environ['MASTER_PORT']) > 0}")
    measured(spec, rank)


def behave(spec: RunSpec) -> None:
    """Do what the setting's `act` says; N in `act:N` makes settings distinct."""
    globals()[spec.config.raw["act"].partition(":")[0]](spec, int(os.environ["RANK"]))


def main() -> int:
    """Be one rank (after an exec) or the executor."""
    if sys.argv[1] == "--rank":
        return call(behave, RunSpec.read(Path(sys.argv[2])))
    file_lock.HEARTBEAT_SECONDS = float(os.environ.get("HEARTBEAT_SECONDS", "20"))  # tests use a shorter interval
    launcher = Launcher(entry=behave, spawn_command=(sys.executable, str(HERE), "--rank"), preload=lambda: None)
    return run_executor(launcher)


if __name__ == "__main__":
    sys.exit(main())

"""One case of the storm: a real sweep, its faults, the same command until it succeeds, and what must hold then."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from damages import DAYS_SECONDS, chosen, chosen_folder, damage
from grammar import BEFORE, Case, Fault
from ledger import mounted
from promises import Ledger, check_nothing_left, check_whole, check_words
from scene import Scene, environment_of, working_in

from accelsweep.state.folders import SweepFolder

MOST_COMMANDS = 3
"""After the last fault the same command may be given so often, until it succeeds."""

COMMAND = ["run", "experiment=tiny", "repeats=2"]
_POLL_SECONDS = 0.05
_HOUR_SECONDS = 3700.0


@dataclass
class Place:
    """What one worker has: the folder of its sweeps and locks, a short TMPDIR, and variables for all commands."""

    folder: Path
    temporary: Path
    variables: dict[str, str]

    @property
    def home(self) -> Path:
        """The user's working directory."""
        return self.folder / "home"

    @property
    def base(self) -> Path:
        """A working directory with a measured sweep."""
        return self.folder / "base"

    def environment(self, *, shared_server: bool = True) -> dict[str, str]:
        """Return the environment of a command."""
        return environment_of(self.temporary, self.folder / "leases", **(self.variables if shared_server else {}))


@dataclass
class Storm:
    """A case while it happens. `struck` are the faults that met something, `log` what happened, in words."""

    place: Place
    case: Case
    struck: list[Fault] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self.home = self.place.home
        self.name = "tiny"
        self.ledger = Ledger()
        self.until_it_ends = ExitStack()
        self.damaged = self.store_damaged = False

    @property
    def folder(self) -> SweepFolder:
        """The sweep's folder, where it is now."""
        return SweepFolder(self.home, self.name)

    def happen(self) -> None:
        """Let it all happen. Raises AssertionError where a promise is broken."""
        with ExitStack() as stack:
            self._prepare(stack)
            try:
                self._commands()
                self._age()
                self.ledger.check(self.folder)
                check_whole(self.folder)
                check_nothing_left(self.folder, self.place.temporary)
            finally:
                self._end_all()
                self.until_it_ends.close()

    def keep_evidence(self, folder: Path) -> None:
        """Copy what is left of the user's working directory, and what was said."""
        shutil.copytree(self.home, folder / "home", symlinks=True, ignore=_no_files)
        (folder / "said.txt").write_text("\n".join([str(self.case), *self.log]))

    def _prepare(self, stack: ExitStack) -> None:
        for left in (*self.place.folder.glob("home*"), self.place.temporary):
            shutil.rmtree(left, ignore_errors=True)
        self.place.temporary.mkdir()
        self.home.mkdir()
        if any(fault.what == "disk full" for fault in self.case.faults):
            stack.enter_context(mounted(self.home, "size=48m"))
        shutil.copytree(self.place.base, self.home, dirs_exist_ok=True, copy_function=shutil.copy2)
        if self.case.fresh:
            for made in ("sweeps", "reports", "mlartifacts", ".snakemake", "mlflow.db"):
                with suppress(FileNotFoundError):
                    shutil.rmtree(self.home / made) if made != "mlflow.db" else (self.home / made).unlink()
            shutil.copy2(self.place.folder / "empty.db", self.home / "mlflow.db")
        self.ledger.look(self.folder)

    def _commands(self) -> None:
        number, after, last = 0, 0, max(fault.command for fault in self.case.faults)
        while True:
            number += 1
            code = self._command(number)
            if number < last:
                continue
            after += number > last
            if code == 0 and not (number == last and self.damaged):
                return
            assert after < MOST_COMMANDS, f"{after} further commands have not completed it"

    def _command(self, number: int) -> int:
        """Give the command for the `number`-th time, with its faults; return its exit code, 1 if it asked for more."""
        faults = [fault for fault in self.case.faults if fault.command == number]
        for fault in faults:
            if fault.when == BEFORE:
                self._strike(fault, None)
        output = self.place.folder / f"output-{number}.txt"
        own_server = any(fault.whom == "fork server" for fault in faults)
        scene = Scene(self.home, self.name, self._arguments(), self._environment(own_server), output)
        waiting = [fault for fault in faults if fault.when != BEFORE]
        while waiting and scene.goes_on():
            for fault in list(waiting):
                if scene.reached(fault.when, fault.share) and self._strike(fault, scene):
                    waiting.remove(fault)
            time.sleep(_POLL_SECONDS)
        code = scene.ended()
        self.until_it_ends.close()
        said = output.read_text("utf-8", "replace")
        self.log.append(f"$ accelsweep {' '.join(self._arguments())} -> {code}\n{said}")
        check_words(code, said)
        self.ledger.look(self.folder)
        return 1 if self._heed(said) else code

    def _arguments(self) -> list[str]:
        return [*COMMAND, *([] if self.name == "tiny" else ["--name", self.name])]

    def _environment(self, own_server: bool) -> dict[str, str]:
        return self.place.environment(shared_server=not own_server)

    def _heed(self, said: str) -> bool:
        """Do what the command says of a store that is damaged: move it away. Return whether it said so."""
        if not (self.store_damaged and "move it away" in said):
            return False
        for file in self.home.glob("mlflow.db*"):
            file.rename(file.with_name(f"moved-{file.name}"))
        return True

    def _strike(self, fault: Fault, scene: Scene | None) -> bool:
        """Let the fault happen; return whether it met something."""
        met = _STRIKES.get(fault.what, _damage if scene is None or fault.what in _DAMAGING else _signal)
        if not met(self, fault, scene):
            return False
        self.struck.append(fault)
        return True

    def _age(self) -> None:
        """Let an hour pass for half-written files."""
        past = time.time() - _HOUR_SECONDS
        for path in [*self.home.rglob(".*.part"), *self.home.glob(".mlflow.db.*"), *self.home.glob(".import.*")]:
            os.utime(path, (past, past))

    def _end_all(self) -> None:
        for process in working_in(self.home):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _no_files(place: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(place, name).is_dir() or Path(place, name).is_file())]


_DAMAGING = frozenset(
    {
        *("cut short", "a byte flipped", "emptied", "made a folder", "made a FIFO", "made a link to /dev/zero"),
        *("deleted", "stamped in the future", "stamped in the past", "old content restored", "made unreadable"),
    }
)


def _signal(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    assert scene is not None
    victim = scene.find(fault.whom)
    if victim is None:
        return False
    storm.log.append(f"{fault.what} to {fault.whom}, process {victim.pid}")
    with suppress(psutil.NoSuchProcess):
        if fault.what == "SIGSTOP":
            victim.suspend()
            time.sleep(0.5 + 2.0 * (fault.dice % 100) / 100)
            victim.resume()
        else:
            name, _, twice = fault.what.partition(" ")
            victim.send_signal(signal.Signals[name])
            if twice:
                time.sleep(0.3 * (fault.dice % 100) / 100)
                victim.send_signal(signal.Signals[name])
    return True


def _damage(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    dice = random.Random(fault.dice)
    path = chosen(storm.home, fault.whom, dice)
    if path is None:
        return False
    if not fault.what.startswith("stamped"):
        storm.ledger.forgive(path)
    old = storm.place.base / path.relative_to(storm.home)
    storm.log.append(f"{fault.what}: {path.relative_to(storm.home)}")
    storm.damaged |= scene is not None  # perhaps after its last use
    storm.store_damaged |= fault.whom == "MLflow's store"
    return damage(path, fault.what, dice, old)


def _folder_deleted(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    path = chosen_folder(storm.home, fault.whom, random.Random(fault.dice))
    if path is None:
        return False
    storm.log.append(f"deleted: {path.relative_to(storm.home)}")
    storm.ledger.forgive(path / "record.json")
    storm.damaged |= scene is not None
    shutil.rmtree(path, ignore_errors=True)
    return True


def _beside(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    arguments = {
        "clean": ["clean", storm.name, "--yes"],
        "run": COMMAND,
        "retry": ["retry", storm.name, "--outcome", "measured"],
    }
    command = [sys.executable, "-m", "accelsweep", *arguments.get(fault.whom, [fault.whom, storm.name])]
    done = subprocess.run(
        command, cwd=storm.home, env=storm.place.environment(), capture_output=True, text=True, check=False, timeout=200
    )
    said = done.stdout + done.stderr
    storm.log.append(f"beside it: accelsweep {fault.whom} -> {done.returncode}\n{said}")
    check_words(done.returncode, said)
    if done.returncode == 0 and fault.whom in ("clean", "retry"):  # it came after the head's end
        storm.ledger.settled.clear()
    return True


def _full_disk(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.log.append("the disk is full")
    storm.until_it_ends.callback((storm.home / "ballast").unlink, missing_ok=True)
    with suppress(OSError), (storm.home / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with suppress(OSError), (storm.home / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"x")
    return True


def _read_only(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.until_it_ends.enter_context(mounted(storm.home, "ro"))
    return True


def _home_moved(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.home = storm.home.rename(storm.place.folder / "home-elsewhere")
    return True


def _sweep_renamed(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    if not storm.folder.root.exists():
        return False
    storm.folder.root.rename(storm.folder.root.with_name("renamed"))
    storm.name = "renamed"
    return True


def _stamp(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    stamp = time.time() + (DAYS_SECONDS if fault.what.endswith("future") else -DAYS_SECONDS)
    for path in sorted(storm.home.rglob("*"), reverse=True):
        os.utime(path, (stamp, stamp), follow_symlinks=False)
    return True


_STRIKES: dict[str, Callable[[Storm, Fault, Scene | None], bool]] = {
    "folder deleted": _folder_deleted,
    "at the same time": _beside,
    "disk full": _full_disk,
    "disk read-only": _read_only,
    "home moved": _home_moved,
    "sweep renamed": _sweep_renamed,
    "all stamped in the future": _stamp,
    "all stamped in the past": _stamp,
}

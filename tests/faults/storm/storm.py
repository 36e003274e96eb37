"""One case of the storm: a real sweep, its faults, the same command until it succeeds, and what must hold then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from grammar import BEFORE, Case, Fault
from promises import NO_CAUSE, Ledger, check_nothing_left, check_whole, check_words, kind_of_ending
from record_audit import mounted
from scene import Scene, environment_of, working_in
from strikes import COMMAND, strike_of

from accelsweep.records.layout import SweepFolder

MOST_COMMANDS = 3
"""After the last fault the same command may be given so often, until it succeeds."""

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

    @property
    def empty_database(self) -> Path:
        """A store of MLflow's without a run."""
        return self.folder / "empty.db"

    def environment(self, *, shared_server: bool = True) -> dict[str, str]:
        """Return the environment of a command."""
        return environment_of(self.temporary, self.folder / "leases", **(self.variables if shared_server else {}))


@dataclass
class Storm:
    """A case while it happens. `struck` are the faults that met something, `log` what happened, in words.

    `endings` are the kinds of endings of its commands.
    """

    longest_seconds: ClassVar[float] = 240.0
    """A command that takes longer hangs."""

    place: Place
    case: Case
    struck: list[Fault] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)

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
                self._check_nothing_left()
            finally:
                self._end_all()
                self.until_it_ends.close()

    def _check_nothing_left(self) -> None:
        check_nothing_left(self.folder, self.place.temporary)

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
            shutil.copy2(self.place.empty_database, self.home / "mlflow.db")
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
        code = scene.ended(self.longest_seconds)
        self.until_it_ends.close()
        said = output.read_text("utf-8", "replace")
        self.log.append(f"$ accelsweep {' '.join(self._arguments())} -> {code}\n{said}")
        self.endings.append(kind_of_ending(code, said))
        check_words(code, said)
        assert not self.endings[-1].startswith(NO_CAUSE), said
        self.ledger.look(self.folder)
        return 1 if self._heed(said) else code

    def _arguments(self) -> list[str]:
        return [*COMMAND, *([] if self.name == "tiny" else ["--name", self.name])]

    def _environment(self, own_server: bool) -> dict[str, str]:
        return self.place.environment(shared_server=not own_server)

    def _heed(self, said: str) -> bool:
        """Do what the command says of a store that is damaged: fill a new one. Return whether it said so."""
        if not (self.store_damaged and f"accelsweep publish {self.name} --anew" in said):
            return False
        command = [sys.executable, "-m", "accelsweep", "publish", self.name, "--anew"]
        done = subprocess.run(
            command, cwd=self.home, env=self._environment(own_server=False), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return True

    def _strike(self, fault: Fault, scene: Scene | None) -> bool:
        """Let the fault happen; return whether it met something."""
        if not strike_of(fault)(self, fault, scene):
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


def asked_seeds(usual: range) -> list[object]:
    """Return the numbers that STORM_SEEDS gives, such as `7,20-29`, else the `usual` ones of `make test-long`."""
    asked = [part.partition("-") for part in os.environ.get("STORM_SEEDS", "").split(",") if part]
    if asked:
        return [seed for first, _, last in asked for seed in range(int(first), int(last or first) + 1)]
    # a case measures one sweep or two; tests/faults and tests/slurm strike drivers and executors one by one
    return [pytest.param(seed, marks=pytest.mark.long) for seed in usual]


def weather(storm: Storm, evidence: Path, record_property: Callable[[str, object], None]) -> None:
    """Let a case happen, tell what happened, and count its faults for the tally. Keeps `evidence` where it fails."""
    print(storm.case)  # noqa: T201 - pytest shows it where the case fails
    try:
        storm.happen()
    except Exception:
        storm.keep_evidence(evidence)
        raise
    finally:
        for kind in storm.endings:
            record_property("ending", kind)
        for fault in storm.struck:
            for kind in (f"fault: {fault.what}", f"upon: {fault.whom}", f"when: {fault.when}"):
                record_property("injected", kind)
        print(*storm.log, sep="\n")  # noqa: T201 - the same

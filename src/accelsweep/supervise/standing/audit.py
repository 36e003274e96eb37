"""The results of a sweep that still stand, found from its files alone and before anything is scheduled.

False done files are removed, so that Snakemake runs their blocks again. A done file is false in three cases. A record
is missing, damaged, altered or no answer, or its raw steps have another checksum. A wanted run is not listed. Or, where
asked, software, device or code of a record are not the present ones. Damaged files are renamed, never used and never
overwritten. Old files that kills left half written are swept up. Needs neither torch nor pandas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.documents import set_aside, sha256_file
from accelsweep.base.errors import DamagedFile
from accelsweep.core.planned.plans import Block, Done, Manifest
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Record, steps_damage
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import why_not_run
from accelsweep.state.leftovers import sweep_up
from accelsweep.state.living import command_began, living_hold
from accelsweep.supervise.standing.skips import Present, ended_for_now


@dataclass(frozen=True)
class RunState:
    """One wanted run as its files show it; `outcome` is `not_run` where there is no usable record."""

    run: str
    block: str
    outcome: Outcome
    reason: str | None = None

    @property
    def settled(self) -> bool:
        """Whether the run needs no further attempt."""
        return self.outcome.settled


@dataclass(frozen=True)
class Audit:
    """Every wanted run's state in plan order, the blocks whose done file was removed, and the damaged files."""

    runs: tuple[RunState, ...]
    reopened: tuple[str, ...]
    damaged: tuple[DamagedFile, ...]

    @property
    def unsettled(self) -> tuple[RunState, ...]:
        """The runs that the next command attempts."""
        return tuple(run for run in self.runs if not run.settled)

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """The number of runs by outcome."""
        return Counter(run.outcome for run in self.runs)


def audit(folder: SweepFolder, *, check_present: bool = False) -> Audit:
    """Look at every wanted run of the sweep, reopen blocks whose done file is not true, set damaged files aside.

    With `check_present`, a block is also reopened if its records were made under other conditions than the present
    ones, as far as this machine can tell (`standing.skips`).
    Damaged files of a block that a living supervisor works on are named, but left to it. Raises DamagedFile for a
    damaged manifest.
    """
    manifest = _manifest(folder)
    sweep_up(folder)
    since = command_began(folder)
    present = Present(folder.home, folder.name, manifest.site, since=since) if check_present else None
    runs: list[RunState] = []
    reopened: list[str] = []
    damaged: list[DamagedFile] = []
    for planned in manifest.blocks:
        found = _Block(folder, planned.name, planned.runs, damaged)
        states = found.states()
        runs += states
        if found.done_is_false(states, present, since):
            folder.done(planned.name).unlink(missing_ok=True)
            reopened.append(planned.name)
    return Audit(tuple(runs), tuple(reopened), tuple(damaged))


def _manifest(folder: SweepFolder) -> Manifest:
    try:
        return Manifest.read(folder.manifest)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.why}; the same `accelsweep run` writes it anew") from None


class _Block:
    def __init__(self, folder: SweepFolder, name: str, wanted: tuple[str, ...], damaged: list[DamagedFile]) -> None:
        self._folder = folder
        self._name = name
        self._wanted = wanted
        self._damaged = damaged
        self._busy = living_hold(folder.hold(name)) is not None
        self._records: dict[str, Record] = {}

    def states(self) -> list[RunState]:
        """Return the state of each wanted run, and set damaged files of the block aside."""
        self._check(self._folder.block(self._name))
        return [self._state(run) for run in self._wanted]

    def done_is_false(self, states: list[RunState], present: Present | None, since: str | None) -> bool:
        """Return whether there is a false done file. The present command, if there is one, began at `since`."""
        path = self._folder.done(self._name)
        try:
            done = Done.read(path)
        except FileNotFoundError:
            return False
        except DamagedFile as error:
            self._set_aside(error)
            return True
        ended = {run for run, record in self._records.items() if ended_for_now(record, since)}
        true = all(state.run in ended and done.records.get(state.run) == self._digest(state.run) for state in states)
        if present is not None:
            true = true and all(present.why_again(record) is None for record in self._records.values())
        return not true

    def _digest(self, run: str) -> str:
        return sha256_file(self._folder.record(run))

    def _state(self, run: str) -> RunState:
        try:
            record = RunFolder(self._folder.run(run), run).record()
        except DamagedFile as error:
            self._set_aside(error)
            return RunState(run, self._name, Outcome.not_run, f"its record is damaged: {error.why}")
        if record is None:
            return RunState(run, self._name, Outcome.not_run, why_not_run(self._folder, self._name))
        damage = steps_damage(record, self._folder.steps(run))
        if damage is not None:
            self._set_aside(damage)
            return RunState(run, self._name, Outcome.not_run, f"its steps.parquet is damaged: {damage.why}")
        self._records[run] = record
        return RunState(run, self._name, record.outcome, record.reason)

    def _check(self, path: Path) -> None:
        try:
            Block.read(path)
        except FileNotFoundError:
            self._damaged.append(DamagedFile(path, "it is missing; the same `accelsweep run` writes it anew"))
        except DamagedFile as error:
            self._set_aside(DamagedFile(error.path, f"{error.why}; the same `accelsweep run` writes it anew"))

    def _set_aside(self, error: DamagedFile) -> None:
        if self._busy or not error.path.exists():
            self._damaged.append(error)
            return
        aside = set_aside(error.path)
        self._damaged.append(DamagedFile(error.path, f"{error.why}; set aside as {aside.name}"))

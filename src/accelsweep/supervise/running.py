"""One attempt at one run: lease, launch, watch, classify, record. Whether there is another is decided elsewhere."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from accelsweep.core.cells.cell import placed
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Block, Run
from accelsweep.core.planned.settings import Limits
from accelsweep.core.recorded.frontier import Frontier
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt, now
from accelsweep.core.sites.site import Site
from accelsweep.plan.blocks.resources import threads_per_rank
from accelsweep.plan.nodes import models_for
from accelsweep.rank.spec import RankResult, RunSpec
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder
from accelsweep.state.holding import Holder
from accelsweep.supervise.ends.disk import check_room
from accelsweep.supervise.ends.job_end import job_log
from accelsweep.supervise.ends.outcomes import Conclusion, classify
from accelsweep.supervise.ends.records import (
    Circumstances,
    ending_doubts,
    make_record,
    merge_steps,
    read_results,
    source_doubts,
)
from accelsweep.supervise.frontier.tries import Search
from accelsweep.supervise.git import git_state
from accelsweep.supervise.leases import NOTHING, Lease, NotEnoughDevices, leased
from accelsweep.supervise.processes.launchers import Launchers, LaunchKind
from accelsweep.supervise.processes.logs import last_words
from accelsweep.supervise.processes.nodes import check_job
from accelsweep.supervise.processes.to_the_end import Watcher
from accelsweep.supervise.processes.watching import Ending
from accelsweep.supervise.signals import Signals
from accelsweep.supervise.standing.skips import Present
from accelsweep.supervise.standing.versions import Versions

_NO_STEPS = Doubt(
    code="no_steps",
    message="the rate was measured, but the time of each step could not be kept",
    remedy="read run.log; without the steps nobody can tell whether the window was steady",
)


@dataclass(frozen=True)
class Runner:
    """The common parts of all attempts of a block."""

    folder: SweepFolder
    block: Block
    limits: Limits
    site: Site
    present: Present
    launchers: Launchers
    signals: Signals
    hold: Holder
    say: Callable[[str], None]

    @cached_property
    def versions(self) -> Versions:
        """The versions of the sweep."""
        return Versions(self.folder)

    def attempt(self, run: Run) -> Conclusion | None:
        """Make one attempt at `run` and leave its record; None if it was interrupted before it came to an end."""
        config = self.block.configs[run.cell]
        try:
            if config.num_nodes > 1:
                check_job(config, self.site.of_kind(self.block.resources.node_kind).jobs.container)
                return self._on(NOTHING, run, "srun")  # each node leases its own devices
            holder = f"process {os.getpid()} ({run.name} of {self.folder.name})"
            with leased(config, holder, self._pause, self.say, models_for(config, self.site)) as lease:
                return self._on(lease, run, self._kind(config))
        except NotEnoughDevices as error:
            return self.without_launch(run, Conclusion(Outcome.crashed, f"{socket.gethostname()}: {error}"))
        finally:
            self.hold.idle()

    def _kind(self, config: CellConfig) -> LaunchKind:
        version = self.versions.needed(config)
        if version is not None and version.needs_own_interpreter:
            return "spawn"
        return self.launchers.kind_for(config, self.say)

    def _pause(self, seconds: float) -> bool:
        self.hold.beat()
        return self.signals.pause(seconds)

    def without_launch(self, run: Run, conclusion: Conclusion) -> Conclusion:
        """Record a conclusion that was reached without starting anything."""
        place = self._place(run)
        spec = self._spec(run, place.begin(socket.gethostname(), now(), job_log()))
        self._conclude(spec, conclusion, {}, self._circumstances(spec, "none"), [])
        return conclusion

    def _on(self, lease: Lease, run: Run, kind: LaunchKind) -> Conclusion | None:
        check_room(self.folder.root, self.limits)
        place = self._place(run)
        number = place.begin(socket.gethostname(), now(), job_log())
        try:
            return self._measure(lease, self._spec(run, number), kind)
        finally:
            place.discard_half_written(number)
            place.unmark(number)  # we are still here, so the run did not take us down

    def _measure(self, lease: Lease, spec: RunSpec, kind: LaunchKind) -> Conclusion | None:
        self.say(f"{spec.run.name}: attempt {spec.attempt} ({kind}, {spec.world_size} ranks)")
        spec.write(spec.file())
        known = self._circumstances(spec, kind)
        self.hold.running(spec.run.name, known.started_at)
        if spec.config.task == "memory_frontier":
            return self._search(lease, spec, kind, known)
        ending = self._processes(lease, spec, kind, self.limits)
        results = read_results(spec, ending.reported)
        if ending.cause == "interrupted" and len(results) < spec.world_size:
            self.say(f"{spec.run.name}: stopped before its end; it will be measured again")
            return None
        log = self._place(spec.run).log_file(spec.attempt)
        conclusion = classify(ending, results, last_words(log), self.limits)
        if conclusion.outcome is Outcome.crashed:
            check_room(self.folder.root, self.limits)  # a full disk is not the run's fault
        doubts = ending_doubts(ending, conclusion) + source_doubts(known.fingerprint, self.present.read(spec.config))
        self._conclude(spec, conclusion, results, replace(known, wall_seconds=ending.wall_seconds), doubts)
        return conclusion

    def _search(self, lease: Lease, spec: RunSpec, kind: LaunchKind, known: Circumstances) -> Conclusion | None:
        def launch(one: RunSpec, limits: Limits) -> Ending:
            return self._processes(lease, one, kind, limits)

        log = self._place(spec.run).log_file(spec.attempt)
        found = Search(spec, self.limits, launch, log, self.say).run()
        if found.conclusion is None:
            self.say(f"{spec.run.name}: stopped before its end; it will be measured again")
            return None
        if found.conclusion.outcome is Outcome.crashed:
            check_room(self.folder.root, self.limits)
        doubts = source_doubts(known.fingerprint, self.present.read(spec.config))
        known = replace(known, wall_seconds=found.wall_seconds)
        self._conclude(spec, found.conclusion, found.results, known, doubts, found.frontier)
        return found.conclusion

    def _processes(self, lease: Lease, spec: RunSpec, kind: LaunchKind, limits: Limits) -> Ending:
        watcher = Watcher(self.launchers, self.signals, self.hold.beat, self.block.resources.cpus)
        return watcher.to_the_end(spec, kind, lease, self.versions.needed(spec.config), limits)

    def _conclude(
        self,
        spec: RunSpec,
        conclusion: Conclusion,
        results: Mapping[int, RankResult],
        known: Circumstances,
        doubts: list[Doubt],
        frontier: Frontier | None = None,
    ) -> None:
        self.hold.confirm()
        place = self._place(spec.run)
        steps = place.steps_file(spec.attempt)
        kept = merge_steps(spec, steps)
        if conclusion.outcome is Outcome.measured and not kept and frontier is None:
            doubts = [*doubts, _NO_STEPS]
        config = self.block.configs[spec.run.cell]
        record = make_record(spec, config, conclusion, results, known, doubts, steps if kept else None, frontier)
        record.write(place.record_file(spec.attempt))
        place.promote(spec.attempt)
        for rank in range(spec.world_size):
            spec.rank_steps(rank).unlink(missing_ok=True)
            spec.pulse(rank).unlink(missing_ok=True)
        self.say(f"{spec.run.name}: {conclusion.outcome} after {known.wall_seconds:.1f} s" + _because(conclusion))

    def _circumstances(self, spec: RunSpec, launcher: str) -> Circumstances:
        """Return the present facts, just before the ranks import the user's code; the duration is added later."""
        version = self.versions.of(spec.config)
        git = git_state(self.folder.home if version is None else version.folder)
        return Circumstances(launcher, now(), 0.0, self.present.read(spec.config), git)

    def _place(self, run: Run) -> RunFolder:
        return RunFolder(self.folder.run(run.name), run.name)

    def _spec(self, run: Run, attempt: int) -> RunSpec:
        config = self.block.configs[run.cell]
        return RunSpec(
            sweep=self.folder.name,
            block=self.block.name,
            run=run,
            position=self.block.runs.index(run),
            attempt=attempt,
            config=placed(config, self.folder.home),
            axes=self.block.axes[run.cell],
            world_size=config.world_size,
            attempt_folder=str(self._place(run).attempt(attempt)),
            threads=threads_per_rank(config, self.site),
            ceilings=str(self.folder.ceilings(self.block.name)),
            silence_seconds=self.limits.silence_seconds,
            run_seconds=self.limits.run_seconds,
            device_models=models_for(config, self.site),
        )


def _because(conclusion: Conclusion) -> str:
    return f": {conclusion.reason}" if conclusion.reason else ""

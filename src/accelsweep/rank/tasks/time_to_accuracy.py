"""`task: time_to_accuracy`: a training run with training until the target in place of its quality phase.

The window comes first, so that rates, memory, energy and doubts are those of the same cell's `train_throughput`.
"""

from __future__ import annotations

from accelsweep.measure.devices.kinds import measured_device
from accelsweep.measure.group import group_of
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.loops.run_trainer import Length
from accelsweep.rank.quality import QualityPhase
from accelsweep.rank.tasks.chase import Chase, Goal, most_samples
from accelsweep.rank.tasks.train_throughput import TrainThroughput


class TimeToAccuracy(TrainThroughput):
    """Trains a fresh module and validates it again and again, until it is good enough or the samples are spent."""

    def _quality(self) -> QualityPhase:
        most = most_samples(self._spec.config, self._epoch_samples)
        loop = make_loop(self._spec, Length(samples=most))
        goal = Goal.of(self._spec.config, loop.accumulate, self._epoch_samples)
        chase = Chase(
            goal, device=measured_device(loop.device), group=group_of(self._spec.world_size), epoch_ends=loop.epoch_ends
        )
        loop.drive(chase, chase)
        metrics = chase.metrics()
        return QualityPhase(metrics, loop.logged, chase.doubts)

"""The rates that a sweep measured, in the form in which they reach the training that is compared with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from accelsweep.results import UNSEEN_PRECISION

EXPECTATION_VARIABLE = "ACCELSWEEP_WATCH"
"""The environment variable through which `accelsweep watch` passes an `Expectation` to the command."""


@dataclass(frozen=True)
class MeasuredRate:
    """What the runs of one setting reached on one machine.

    `samples_per_second` is the median over `runs` runs, of all ranks together. `global_batch_size` is the number of
    samples per optimiser step, None if steps differ, and `batch_size` that of a rank's batch. `measured_on` is the date
    of the last run (UTC, ISO 8601).
    """

    setting: str
    label: str
    samples_per_second: float
    runs: int
    measured_on: str
    machine: str | None
    host: str | None
    hardware: dict[str, str]
    software: dict[str, str]
    batch_size: int
    global_batch_size: int | None
    world_size: int
    accelerator: str
    precision: str
    threads_per_rank: int


@dataclass(frozen=True)
class Expectation:
    """What a training is compared with: rates of the sweep `sweep`, every `every_seconds`.

    `is_named` is set if the user named the setting, so that all `rates` are of that one.
    """

    sweep: str
    rates: tuple[MeasuredRate, ...]
    is_named: bool
    every_seconds: float

    def to_json(self) -> str:
        """Return it as a JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Expectation:
        """Return the expectation that `to_json` has written."""
        fields = json.loads(text)
        return cls(**{**fields, "rates": tuple(MeasuredRate(**rate) for rate in fields["rates"])})


@dataclass(frozen=True)
class LiveSetting:
    """What a training shows of its setting; None for what it does not show.

    `batch_size` is that of a rank's batch.
    """

    batch_size: int | None
    world_size: int
    accelerator: str
    precision: str

    def matches(self, rate: MeasuredRate) -> bool:
        """Return whether the rate may be that of this training's setting."""
        return (
            self.batch_size in (None, rate.batch_size)
            and self.world_size == rate.world_size
            and self.accelerator == rate.accelerator
            and rate.precision in (self.precision, UNSEEN_PRECISION)
        )

    def __str__(self) -> str:
        batch = "" if self.batch_size is None else f"batch {self.batch_size}, "
        ranks = "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"
        return f"{batch}{self.precision}, {ranks} on {self.accelerator}"


def choose(expectation: Expectation, live: LiveSetting, machine: str | None) -> MeasuredRate | str:
    """Return the rate to compare a training with; a sentence if there is none, or more than one.

    If any were measured on this `machine`, only those count. Of one setting's rates, the latest is taken.
    """
    matching = [rate for rate in expectation.rates if expectation.is_named or live.matches(rate)]
    matching = [rate for rate in matching if rate.machine == machine] or matching
    settings = list(dict.fromkeys(rate.setting for rate in matching))
    if len(settings) == 1:
        return max(matching, key=lambda rate: rate.measured_on)
    remedy = "name the setting to compare with (--setting or setting=)"
    if settings:
        return f"this training uses {live}, which may be any of {_listed(matching)}: {remedy}"
    known = _listed(expectation.rates)
    return (
        f"this training uses {live}, which {expectation.sweep} has not measured; it has {known}: {remedy}, or measure "
        "this one"
    )


def _listed(rates: Sequence[MeasuredRate], most: int = 8) -> str:
    labels = list(dict.fromkeys(rate.label for rate in rates))
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(f"'{label}'" for label in labels[:most]) + more

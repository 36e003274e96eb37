"""The settings of a sweep: they steer it, and nothing in them changes a measurement."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from accelsweep.config.prices import PlannedPrices, Prices
from accelsweep.errors import nearest
from accelsweep.json_documents import AtLeast0, AtLeast1, Frozen, NotNegative, Positive, Share, ShareFrom0
from accelsweep.tasks import rates_by_task

PILOT_BLOCKS = 3
"""The blocks that `repeats: auto` begins with."""

LOOKS = (3, 5, 8, 12, 20)
"""The numbers of blocks after which `--until-decided` looks at the verdicts; the last ends it."""

THRESHOLD, CONFIDENCE = 0.02, 0.95
"""The default rules of verdicts."""

RESOLUTION, REPEATS_MOST = 0.1, 20
"""The default rules of `repeats: auto`."""


SILENCE_SECONDS = 300.0
"""The time that a rank may be without a step by default: far longer than compared steps, and half of a run's limit."""


class Limits(Frozen):
    """Bounds on a run and a block; they may be raised without measuring anything again.

    `block_seconds` is for one supervisor of a block: once it is spent no further run of the block is started.
    `silence_seconds` bounds the time from one step to the next; None lets a silent run be until `run_seconds` are over.
    `queue_minutes` is for a job in a cluster's queue: one that waits longer is left out; None lets it wait.
    `max_settings`, `max_repeats` and `max_runs` are those of a whole sweep: a larger plan is taken for a typing error.
    """

    run_seconds: Positive = 600.0
    silence_seconds: Positive | None = SILENCE_SECONDS
    queue_minutes: Positive | None = None
    block_seconds: Positive | None = None
    stop_grace_seconds: NotNegative = 5.0
    retries: AtLeast0 = 1
    log_bytes: AtLeast1 = 5_000_000
    free_disk_bytes: AtLeast0 = 200_000_000
    free_disk_inodes: AtLeast0 = 300
    max_settings: AtLeast1 = 10_000
    max_repeats: AtLeast1 = 1_000
    max_runs: AtLeast1 = 100_000


def _rate(value: str) -> str:
    known = sorted({rate for rates in rates_by_task().values() for rate in rates})
    if value not in known:
        raise ValueError(f"is no rate{nearest(value, known)}; they are: {', '.join(known)}")
    return value


class Analysis(Frozen):
    """The bounds of verdicts: the practical threshold, the family's confidence and the quality margin.

    `rate` names the metric that settings are compared by; None takes that of the task (`tasks`). `resolution`
    is the half width, as a share of the ratio, that the intervals are to have on average where `repeats` is `auto`.
    """

    threshold: ShareFrom0 = THRESHOLD
    confidence: Share = CONFIDENCE
    quality_margin: NotNegative = 0.01
    across: tuple[str, ...] = ()
    rate: Annotated[str, AfterValidator(_rate)] | None = None
    resolution: Positive = RESOLUTION


class BlockOptions(Frozen):
    """The cut of runs into blocks: at most `size` runs, at most `minutes` of estimated time; None is no bound.

    Without a `size`, blocks on a cluster are so small that all nodes of its site have work.
    `baseline_runs` is the number of runs of the baseline in each block that has as many other settings.
    """

    size: AtLeast1 | None = None
    minutes: Positive | None = None
    baseline_runs: AtLeast1 = 2


class Options(Frozen):
    """The plan-level part of the config: everything in it steers the sweep and nothing in it changes a measurement.

    `repeats` is how many blocks the plan wants of each setting; `added_repeats` says how many of them `--add-repeats`
    added. More than `repeats_most` are never advised. With `auto_repeats` the config says `auto`: `repeats` is that of
    the pilot at first, then the number that its noise asks for. With `until_decided` it is that of the present look,
    and `decided_at` holds the settings that were decided, each with the number of its blocks. `report` holds keys of
    features, as plain data that their models have checked.
    """

    repeats: AtLeast1 = 3
    added_repeats: int = 0
    repeats_most: AtLeast1 = REPEATS_MOST
    auto_repeats: bool = False
    until_decided: bool = False
    decided_at: dict[str, int] = Field(default_factory=dict)
    baseline: dict[str, Any] = Field(default_factory=dict)
    block: BlockOptions = BlockOptions()
    limits: Limits = Limits()
    analysis: Analysis = Analysis()
    prices: PlannedPrices = Prices()
    report: dict[str, Any] = Field(default_factory=dict)

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of blocks after which a sweep until it is decided is looked at, within `repeats_most`."""
        return tuple(look for look in LOOKS if look <= self.repeats_most)

    def repeats_of(self, setting: str) -> int:
        """Return how many blocks the plan wants of this setting."""
        return min(self.repeats, self.decided_at.get(setting, self.repeats))

    @property
    def pilot(self) -> bool:
        """Whether these are the pilot's blocks, whose noise is yet to say how many follow."""
        return self.auto_repeats and self.repeats == PILOT_BLOCKS

"""Defines a sweep's options, none of which affects a measurement."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from accelsweep.config.prices import Prices
from accelsweep.errors import nearest
from accelsweep.json_documents import AtLeast0, AtLeast1, Frozen, NotNegative, Positive, Share, ShareFrom0
from accelsweep.tasks import rates_by_task

PILOT_BLOCKS = 3
"""The number of blocks in the pilot for `repeats: auto`."""

LOOKS = (3, 5, 8, 12, 20)
"""Block counts at which `--until-decided` runs an interim analysis of the verdicts. The sweep ends at the last one."""

THRESHOLD, CONFIDENCE = 0.02, 0.95
"""Defaults for verdicts."""

RESOLUTION, REPEATS_MOST = 0.1, 20
"""Defaults for `repeats: auto`."""

REPEATS_LEAST = 5
"""The minimum total number of blocks with `repeats: auto`; published results require at least this many."""


class Limits(Frozen):
    """Bounds on a run, a block and a sweep; raising them does not require remeasuring anything.

    `silence_seconds` bounds the time from one step to the next; its default is far longer than any step worth
    comparing. `queue_minutes` bounds a job's time in the queue, after which the job is skipped. No run in a block
    starts after `block_seconds`. None removes a bound. The machine is sampled every `sample_seconds` while a run lasts;
    None does not sample it.

    A crashed run is retried up to `retries` times. Each run waits up to `quiet_wait_seconds` for others to stop using
    the machine, and is measured again up to `disturbed_retries` times if its window was disturbed nevertheless. With
    `stop_early`, blocks that run one after another leave out the settings that earlier ones have shown to be much
    slower than the baseline (`analysis.racing`).

    `max_settings`, `max_repeats` and `max_runs` bound a whole sweep: a larger plan is assumed to result from a typo.
    """

    run_seconds: Positive = 600.0
    silence_seconds: Positive | None = 300.0
    queue_minutes: Positive | None = None
    block_seconds: Positive | None = None
    stop_grace_seconds: NotNegative = 5.0
    sample_seconds: Positive | None = 0.25
    retries: AtLeast0 = 1
    disturbed_retries: AtLeast0 = 2
    quiet_wait_seconds: NotNegative = 20.0
    stop_early: bool = True
    log_bytes: AtLeast1 = 5_000_000
    free_disk_bytes: AtLeast0 = 200_000_000
    free_disk_inodes: AtLeast0 = 300
    max_settings: AtLeast1 = 10_000
    max_repeats: AtLeast1 = 1_000
    max_runs: AtLeast1 = 100_000


def _known_rate(value: str) -> str:
    known = sorted({rate for rates in rates_by_task().values() for rate in rates})
    if value not in known:
        raise ValueError(f"is not a rate{nearest(value, known)}; they are: {', '.join(known)}")
    return value


class Analysis(Frozen):
    """The rules for verdicts: the practical threshold, the family-wise confidence and the quality margin.

    If `quality_margin` is None, it is 0.01 for a metric whose values lie within [0, 1], such as an accuracy, and
    otherwise 1 % of the median value. `across` lists the fields in which settings may differ and still be compared.
    `rate` is the metric by which settings are compared; None selects the task's own metric (`tasks`). If `repeats` is
    `auto`, `resolution` is the target mean half-width of intervals, relative to the ratio. If `profile` is set, a
    local sweep profiles the first comparison that nothing else explains.
    """

    threshold: ShareFrom0 = THRESHOLD
    confidence: Share = CONFIDENCE
    quality_margin: NotNegative | None = None
    across: tuple[str, ...] = ()
    rate: Annotated[str, AfterValidator(_known_rate)] | None = None
    resolution: Positive = RESOLUTION
    profile: bool = True


class BlockOptions(Frozen):
    """How runs are divided into blocks: at most `size` runs and `minutes` of estimated time; None means no bound.

    If `size` is not set, blocks on a cluster are small enough to keep all of the site's nodes busy. `baseline_runs` is
    the number of baseline runs in each block that contains at least as many other settings.
    """

    size: AtLeast1 | None = None
    minutes: Positive | None = None
    baseline_runs: AtLeast1 = 2


class Options(Frozen):
    """The checked plan-level part of the config.

    `repeats` is the number of blocks planned for each setting, of which `--add-repeats` added `added_repeats`; more
    than `repeats_most` are never recommended. If `auto_repeats` is set (`repeats: auto` in the config), `repeats` is
    initially the pilot's number of blocks, then the number that its noise requires. If `until_decided` is set, it is
    the number of blocks at the current interim analysis, and `decided_at` maps the settings decided so far to their
    numbers of blocks. `report` contains features' options as plain data that their models have already validated.
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
    prices: Prices = Prices()
    report: dict[str, Any] = Field(default_factory=dict)

    @property
    def looks(self) -> tuple[int, ...]:
        """The block counts, within `repeats_most`, at which `--until-decided` runs an interim analysis."""
        return tuple(look for look in LOOKS if look <= self.repeats_most)

    def repeats_of(self, setting: str) -> int:
        """Return the number of blocks planned for this setting."""
        return min(self.repeats, self.decided_at.get(setting, self.repeats))

    @property
    def pilot(self) -> bool:
        """Whether these are the blocks of the pilot, whose noise determines how many more follow."""
        return self.auto_repeats and self.repeats == PILOT_BLOCKS

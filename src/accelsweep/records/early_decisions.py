"""Settings that the first blocks have shown to be much slower than the baseline, and that later blocks leave out."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from pydantic import Field

from accelsweep.errors import DamagedFile
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.estimates import Estimate
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.run_config import Run
from accelsweep.significant_digits import count_of, ratio_digits

MIN_BLOCKS = 2
"""Fewer blocks decide nothing."""


class EarlyDecision(Frozen):
    """The decision on one setting.

    `blocks` are those on which the `ratio` to the baseline's rate and its interval rest; the interval holds at any
    number of blocks. `run_seconds` is the mean duration of the setting's runs.
    """

    blocks: tuple[str, ...]
    ratio: Estimate
    run_seconds: float

    @property
    def reason(self) -> str:
        """Why a repeat was not run: `decided after 2 repeats: 0.09x to 0.13x`."""
        low, high = self.ratio.low, self.ratio.high
        assert low is not None, "a decision rests on an interval"
        assert high is not None, "a decision rests on an interval"
        _, low_text, high_text = ratio_digits(self.ratio.value, low, high)
        return f"decided after {count_of(len(self.blocks), 'repeat')}: {low_text}x to {high_text}x"


class EarlyDecisions(Document):
    """All decisions of a sweep by setting. `reopened` are settings that a user wants to be measured nevertheless."""

    kind: ClassVar[str] = "early_decisions"

    settings: dict[str, EarlyDecision] = Field(default_factory=dict)
    reopened: tuple[str, ...] = ()

    def reopen(self, settings: Collection[str]) -> EarlyDecisions:
        """Return the decisions without those on these `settings`, which are never decided early again."""
        kept = {name: decision for name, decision in self.settings.items() if name not in settings}
        return EarlyDecisions(settings=kept, reopened=tuple(sorted({*self.reopened, *settings})))


def early_decisions(folder: SweepFolder) -> EarlyDecisions:
    """Return the sweep's decisions; none if there is no readable file."""
    try:
        return EarlyDecisions.read(folder.early_decisions)
    except (FileNotFoundError, DamagedFile):
        return EarlyDecisions()


def stops_early(manifest: Manifest) -> bool:
    """Return whether the sweep leaves settings out: its blocks run one after another, and it is a plain grid.

    Versions, features and `--until-decided` compare settings with others than the baseline, or have looks of their own.
    """
    options = manifest.options
    is_plain_grid = not (manifest.compared or manifest.parts or options.report or options.until_decided)
    return options.limits.stop_early and manifest.site.scheduler == "local" and is_plain_grid


def decided_runs(folder: SweepFolder, manifest: Manifest) -> dict[str, EarlyDecision]:
    """Return the wanted runs that are left out unless they have a record, each with the decision on its setting."""
    if not stops_early(manifest):
        return {}
    decisions = early_decisions(folder).settings
    return {
        run: decision
        for block in (manifest.blocks if decisions else ())
        for run in block.runs
        if (decision := decisions.get(Run.parse(run).setting)) is not None and block.name not in decision.blocks
    }

"""The results of planning: blocks and the manifest that lists them, and the locks on blocks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import Field, SerializeAsAny, field_validator

from accelsweep import registry
from accelsweep.config.schema import Config
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.config.versions import Version, without_version
from accelsweep.json_documents import Document, Frozen
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.run_config import VERSION, EntryKind, Run
from accelsweep.schedulers.protocol import Resources


class Block(Document):
    """Runs that share one allocation, in the random order in which they are measured.

    Immutable and named after its digest. `configs` maps each setting's name to its frozen scientific config, so that a
    run needs only this file.
    """

    kind: ClassVar[str] = "block"

    name: str
    sweep: str
    order_seed: int
    runs: tuple[Run, ...]
    configs: dict[str, Config]
    axes: dict[str, dict[str, Any]]
    resources: Resources

    def body(self) -> dict[str, Any]:
        """Return the body as plain data. The configs are not copied, because they are large and already plain data."""
        configs = {name: config.raw for name, config in self.configs.items()}
        return {**self.model_dump(mode="json", exclude={"configs"}), "configs": configs}


class Done(Document):
    """A finished block, with the SHA-256 digest of each wanted run's record file."""

    kind: ClassVar[str] = "done"

    block: str
    records: dict[str, str]


class LockOwner(Document):
    """The process that holds the lock on a block (or, as the driver, on the sweep), and the run being measured."""

    kind: ClassVar[str] = "lock"

    block: str = Field(description="the block's name, `driver` for the driver")
    host: str = Field(description="the machine's name")
    pid: int = Field(description="the process ID on that machine")
    process_started: float = Field(description="when the process started, in Unix seconds")
    job: str | None = Field(None, description="the ID of its job on the cluster")
    restarts: int = Field(0, description="how often the cluster has requeued that job")
    since: str = Field(description="when it acquired the lock")
    run: str | None = Field(None, description="the run being measured")
    run_since: str | None = Field(None, description="when that run started")
    waiting_for: str | None = Field(None, description="what others are doing that the next run waits for")


class PlannedSetting(Frozen):
    """A setting as listed in the manifest; its config is in the blocks."""

    name: str
    axes: dict[str, Any]
    unsupported: str | None = None


class PlannedBlock(Frozen):
    """A block as listed in the manifest, with those of its runs that this revision of the plan wants."""

    name: str
    runs: tuple[str, ...]
    resources: Resources


class Excluded(Frozen):
    """A combination of axis values that an `exclude:` rule drops, with the rule's reason."""

    axes: dict[str, Any]
    because: str


class FoundBatch(Frozen):
    """The batch size per rank that replaces `batch_size: auto` in all settings that share a search.

    `search` is the name of the search in the sweep `sweep`, and `record_sha256` is the digest of its record. The search
    found `largest` while holding a fraction `headroom` of the free memory in reserve; `batch_size` is smaller if the
    data has fewer rows.
    """

    search: str
    batch_size: int
    largest: int
    headroom: float
    sweep: str
    record_sha256: str


class PlanPart(Frozen):
    """What a feature's command adds to a plan (`registry.Feature.plan_part`): its options, and how to resume it."""

    command: ClassVar[str]
    """The command that resumes the sweep in place of `run`; by default, the command names its sweeps COMMAND-NAME."""

    @property
    def words(self) -> list[str]:
        """The options of the command, as typed on the command line."""
        raise NotImplementedError

    @property
    def repeats(self) -> int:
        """The number of blocks in the sweep."""
        raise NotImplementedError


def parse_parts(parts: Mapping[str, Any], base: type, models: Mapping[str, str]) -> dict[str, Any]:
    """Validate each feature's part of a document with that feature's model; drop parts of unavailable features."""
    return {
        name: part if isinstance(part, base) else registry.load(models[name]).model_validate(part)
        for name, part in parts.items()
        if isinstance(part, base) or name in models
    }


_Part = TypeVar("_Part", bound=PlanPart)


class Quality(Frozen):
    """The metric of the user's own validation that measures a model's quality."""

    metric: str = Field(min_length=1)
    better: Literal["max", "min"] = "max"


BatchMeaning = Literal["per_device", "global", "tokens"]
"""Whether a script's batch size applies to each rank, is divided among all ranks, or is a rank's budget of tokens."""


UNKNOWN_BATCH_SIZE = (
    "only the script knows the batch size: type batch_size=NUMBER, or run the sweep on this machine, where a trial"
    " finds it"
)
"""Why a setting whose batch size neither the command nor the project states is unsupported before a trial."""


class TrialFindings(Frozen):
    """What a trial of the user's script has shown.

    `batch_is` is None unless the trial ran on several ranks. `batch_size` is the size that only the script knows; None
    if the command or the project's config states it. `quality` is the metric that the script's ModelCheckpoint or
    EarlyStopping monitors, if any. `left_out` names the callbacks that are removed for the measurement.
    """

    batch_is: BatchMeaning | None = None
    batch_size: int | None = None
    quality: Quality | None = None
    left_out: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return sentences for the plan."""
        notes = []
        if self.batch_size is not None:
            notes.append(f"batch_size={self.batch_size} was found by the trial")
        if self.left_out:
            notes.append(f"left out of the measured Trainer, besides its loggers: {', '.join(self.left_out)}")
        return notes


class MeasuredProject(Frozen):
    """The user's own training script, if a sweep measures one.

    `typed` is the value of --entry that a command needs in order to find the same script and interpreter, if any.
    `python` is the project's interpreter and `software` the versions of Python and of its packages; None and empty for
    accelsweep's own environment. `batch_is` is what the script's batch size means on several ranks; None if unknown.
    `trial` is None if there was no trial. `kept` maps calls of resolvers in the project's config, such as
    `oc.env:DATA`, to what they return in all runs of the sweep.
    """

    command: str
    kind: EntryKind
    typed: str | None = None
    python: str | None = None
    software: dict[str, str] = Field(default_factory=dict)
    batch_is: BatchMeaning | None = None
    trial: TrialFindings | None = None
    kept: dict[str, Any] = Field(default_factory=dict)

    @property
    def default_name(self) -> str:
        """The name of a sweep of the script: that of the file, module or program, without a suffix."""
        words = shlex.split(self.command)
        if self.kind == "command":
            return Path(words[0]).stem
        return words[2].rpartition(".")[2] if words[1] == "-m" else Path(words[1]).stem

    @property
    def words(self) -> list[str]:
        """The option that names the script in a command, if it is needed."""
        return [] if self.typed is None else ["--entry", self.typed]


class Manifest(Document):
    """One revision of a sweep's plan, with everything that a job, a reader or a later revision needs.

    `settings` are in grid order and include unsupported ones; `blocks` are in the order in which they were planned.
    `sources` maps each user package to the digest of its source files at planning time. `compared` lists the versions
    on the version axis, starting with the one to which the others are compared. `profile` is the Snakemake profile as
    last specified; None for `local`. `found_batches` includes those of earlier revisions, so that a setting keeps its
    batch size. `searches_for` is the sweep on whose behalf this one searches for batch sizes. `parts` maps features to
    their parts. `entry` is the user's own training script, if the sweep measures one.
    """

    kind: ClassVar[str] = "manifest"

    sweep: str
    revision: int
    experiment: str | None
    overrides: tuple[str, ...]
    axes: tuple[str, ...]
    settings: tuple[PlannedSetting, ...]
    excluded: tuple[Excluded, ...]
    baseline: str | None
    blocks: tuple[PlannedBlock, ...]
    options: Options
    site: Site
    sources: dict[str, str]
    versions: dict[str, str]
    compared: tuple[Version, ...] = ()
    profile: str | None = None
    found_batches: tuple[FoundBatch, ...] = ()
    searches_for: str | None = None
    parts: dict[str, SerializeAsAny[PlanPart]] = Field(default_factory=dict)
    entry: MeasuredProject | None = None

    @field_validator("parts", mode="before")
    @classmethod
    def _parse_parts(cls, value: Any) -> Any:
        models = {feature.name: feature.plan_part for feature in registry.features() if feature.plan_part}
        return parse_parts(value, PlanPart, models)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan at `path`; its sweep is named after the folder, which may have been renamed or copied.

        Raises the same exceptions as `Document.read`.
        """
        manifest = super().read(path)
        root = path.absolute().parent
        if root.parent.name != "sweeps" or root.name == manifest.sweep:
            return manifest
        return manifest.model_copy(update={"sweep": root.name})

    def part(self, model: type[_Part]) -> _Part | None:
        """Return the part of the given type, or None."""
        return next((part for part in self.parts.values() if isinstance(part, model)), None)

    @property
    def partners(self) -> dict[str, str]:
        """The baseline of each setting that has one: the same setting in the first version, or the sweep's baseline."""
        if not self.compared:
            return {} if self.baseline is None else {setting.name: self.baseline for setting in self.settings}
        keys = {setting.name: axes_without_version(setting.axes) for setting in self.settings}
        first = self.compared[0].name
        firsts = {keys[setting.name]: setting.name for setting in self.settings if setting.axes.get(VERSION) == first}
        return {name: firsts[key] for name, key in keys.items() if key in firsts}

    @property
    def baselines(self) -> frozenset[str]:
        """Settings that others are compared with: the baseline or, if versions are compared, the first version's."""
        return frozenset(self.partners.values())

    @property
    def profile_arguments(self) -> list[str]:
        """The profile option of a command that resumes this sweep."""
        profile = self.profile or (self.site.scheduler if self.site.scheduler != "local" else None)
        return ["--profile", profile] if profile else []

    @property
    def entry_arguments(self) -> list[str]:
        """The option that names the user's own script in a command that measures this sweep's settings."""
        return [] if self.entry is None else self.entry.words

    def wanted_runs(self) -> list[str]:
        """Return the names of the runs that this revision wants, in block order."""
        return [run for block in self.blocks for run in block.runs]


def axes_without_version(axes: Mapping[str, Any]) -> str:
    """Return a setting's axes without its version, as a key that is the same in every version."""
    return canonical_json(without_version(axes))


# Names of blocks, and of merged runs and sweeps.

BLOCK_NAME = "b[0-9a-f]{12}"
"""The pattern of block names: `b` followed by a digest of the block's contents."""

MAX_NAME_LENGTH = 120
"""Some file systems do not support longer folder names."""


class MergedName(NamedTuple):
    """The name of a run or a block in merged findings: `SWEEP/NAME`, so that no runs are paired across sweeps.

    `sweep` is empty in the findings of a single sweep. Neither part can contain a `/`.
    """

    sweep: str
    name: str

    @classmethod
    def of(cls, text: str) -> MergedName:
        """Parse a name from the findings of one or several sweeps."""
        sweep, _, name = text.rpartition("/")
        return cls(sweep, name)

    def __str__(self) -> str:
        """Return the name as it appears in findings."""
        return f"{self.sweep}/{self.name}" if self.sweep else self.name


def joined_name(sweeps: Sequence[str]) -> str:
    """Return the combined name of several sweeps, `A+B`; a single sweep's name cannot contain a `+`.

    A name that would be too long is shortened to the first sweep, the number of other sweeps, and a digest of all
    names.
    """
    name = "+".join(sweeps)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{sweeps[0]}+{len(sweeps) - 1}-more-{sha256_text(name)[:8]}"

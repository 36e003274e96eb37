"""The results of planning: runs, blocks and the manifest that lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

from pydantic import BeforeValidator, Field, SerializeAsAny

from accelsweep import registry
from accelsweep.config.schema import Config
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Options
from accelsweep.config.versions import Version, without_version
from accelsweep.json_documents import Document, Frozen
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.run_config import VERSION, Run
from accelsweep.schedulers.protocol import Resources


class Block(Document):
    """Runs that share one allocation, in the random order in which they are measured. Immutable, named by content.

    `configs` maps each setting's name to its frozen scientific config, so that a run needs this file and nothing else.
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
        """Return the contents as plain data. The configs are plain as they are, and large: none of them is copied."""
        configs = {name: config.raw for name, config in self.configs.items()}
        return {**self.model_dump(mode="json", exclude={"configs"}), "configs": configs}


class Done(Document):
    """A finished block: for each run that was wanted, the SHA-256 of its record file."""

    kind: ClassVar[str] = "done"

    block: str
    records: dict[str, str]


class Hold(Document):
    """The holder of a block, and the run that it measures. The supervisor keeps it up to date for `status`."""

    kind: ClassVar[str] = "claim"

    block: str
    host: str
    pid: int
    process_started: float
    job: str | None = None
    restarts: int = 0
    since: str
    run: str | None = None
    run_since: str | None = None


class PlannedSetting(Frozen):
    """A setting as the manifest lists it: without its config, which stands in the blocks."""

    name: str
    axes: dict[str, Any]
    unsupported: str | None = None


class PlannedBlock(Frozen):
    """A block as the manifest lists it. `runs` are those of its runs that this revision of the plan wants."""

    name: str
    runs: tuple[str, ...]
    resources: Resources


class Excluded(Frozen):
    """A combination that an `exclude:` rule dropped, with the rule's reason."""

    axes: dict[str, Any]
    because: str


class FoundBatch(Frozen):
    """The batch per rank in the place of `batch_size: auto`, for all settings that share a search.

    `search` names the search among those of `sweep`, and `record_sha256` is the digest of its record. It found
    `largest`, with the share `headroom` of the free memory kept free. `batch_size` is less where the data has fewer
    rows.
    """

    search: str
    batch_size: int
    largest: int
    headroom: float
    sweep: str
    record_sha256: str


class PlanPart(Frozen):
    """What a feature's command adds to a plan (`registry.Feature.plan_part`): its options, and how it goes on."""

    command: ClassVar[str]
    """The command that makes the sweep go on, in place of `run`; its sweeps are called COMMAND-NAME by default."""

    @property
    def words(self) -> list[str]:
        """The options of the command, as they are typed."""
        raise NotImplementedError

    @property
    def repeats(self) -> int:
        """The number of blocks of the sweep."""
        raise NotImplementedError


def _read_parts(written: Any) -> Any:
    models = {feature.name: feature.plan_part for feature in registry.features() if feature.plan_part}
    return {
        name: part if isinstance(part, PlanPart) else registry.load(models[name]).model_validate(part)
        for name, part in written.items()
        if isinstance(part, PlanPart) or name in models
    }


Parts = Annotated[dict[str, SerializeAsAny[PlanPart]], BeforeValidator(_read_parts)]
"""The parts of features by their names, each read with the model of its feature."""

_Part = TypeVar("_Part", bound=PlanPart)


class Manifest(Document):
    """One revision of a sweep's plan, with everything that a job, a reader or a later revision needs from it.

    `settings` are in grid order and include the unsupported ones; `blocks` are in the order in which they were planned.
    `sources` maps each user package to the digest of its source files when the plan was made. `compared` are the
    versions of a sweep that has that axis, the one that the others are compared with first. `profile` is that of
    Snakemake, as the user gave it last, where it is not `local`. `found_batches` are those of all revisions, so that a
    setting keeps its own. `searches_for` is the sweep whose first phase this one is. `parts` are those of
    features, by the feature's name.
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
    parts: Parts = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan at `path`, which is called as its folder is: that may have been renamed, copied or imported.

        Raises as `Document.read` does.
        """
        found = super().read(path)
        root = path.absolute().parent
        if root.parent.name != "sweeps" or root.name == found.sweep:
            return found
        return found.model_copy(update={"sweep": root.name})

    def part(self, model: type[_Part]) -> _Part | None:
        """Return the part of this type, None where the plan has none."""
        return next((part for part in self.parts.values() if isinstance(part, model)), None)

    @property
    def partners(self) -> dict[str, str]:
        """The baseline of each setting that has one: the setting in the first version, or that of the sweep."""
        if not self.compared:
            return {} if self.baseline is None else {setting.name: self.baseline for setting in self.settings}
        alike = {setting.name: in_any_version(setting.axes) for setting in self.settings}
        first = self.compared[0].name
        firsts = {alike[setting.name]: setting.name for setting in self.settings if setting.axes.get(VERSION) == first}
        return {name: firsts[axes] for name, axes in alike.items() if axes in firsts}

    @property
    def baselines(self) -> frozenset[str]:
        """The settings that others are compared with: one of the sweep, or one for each setting of several versions."""
        return frozenset(self.partners.values())

    @property
    def submitted_with(self) -> list[str]:
        """The words that name the profile, in a command that makes this sweep go on."""
        profile = self.profile or (self.site.scheduler if self.site.scheduler != "local" else None)
        return ["--profile", profile] if profile else []

    def wanted_runs(self) -> list[str]:
        """Return the names of all runs that this revision wants, in block order."""
        return [run for block in self.blocks for run in block.runs]


def in_any_version(axes: Mapping[str, Any]) -> str:
    """Return the values of a setting's axes, its version apart: the same for the setting in each version."""
    return canonical_json(without_version(axes))


# The names that a plan gives, and what they become where several sweeps are merged.

BLOCK_NAME = "b[0-9a-f]{12}"
"""Every block's name, which a digest of its contents follows."""

LONGEST = 120
"""A folder of more characters than this would not fit every file system."""


class MergedName(NamedTuple):
    """The name of a run or a block beside those of other sweeps: `SWEEP/NAME`, so that nothing pairs across sweeps.

    `sweep` is empty in the names of a sweep that stands alone. Neither part can hold a `/`.
    """

    sweep: str
    name: str

    @classmethod
    def of(cls, text: str) -> MergedName:
        """Return the parts of a name in the findings of one sweep or of several."""
        sweep, _, name = text.rpartition("/")
        return cls(sweep, name)

    def __str__(self) -> str:
        """Return the name as findings have it."""
        return f"{self.sweep}/{self.name}" if self.sweep else self.name


def name_together(sweeps: Sequence[str]) -> str:
    """Return the name of several sweeps, `A+B`; no sweep's own name can hold a `+`.

    Of a longer name than `LONGEST` it is the first sweep, how many more there are, and a digest of all.
    """
    name = "+".join(sweeps)
    if len(name) <= LONGEST:
        return name
    return f"{sweeps[0]}+{len(sweeps) - 1}-more-{sha256_text(name)[:8]}"

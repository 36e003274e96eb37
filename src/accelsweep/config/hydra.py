"""Hydra's part of planning: find `conf/`, enumerate a sweep exactly as `--multirun` does, compose one point of it.

Only this module and `loader` use Hydra's internals, because the public API refuses sweeps. The parity tests compare
them with `@hydra.main`. Hydra's own exceptions leave this module as an `InputError` with one message.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser, create_functions
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel
from yaml import YAMLError

from accelsweep import registry
from accelsweep.config.hydra_errors import explain
from accelsweep.config.interpolation import refuse_exploding_aliases, refuse_exploding_interpolations
from accelsweep.config.site import Slurm
from accelsweep.config.sweep_options import Limits
from accelsweep.errors import InputError
from accelsweep.installation import config_folders

# Hydra's own keys, which its users know: each has its effect, is refused, or is said to have none.

_USED = ("hydra.sweeper", "hydra/sweeper", "hydra.searchpath", "hydra.mode")

_INSTEAD = {
    "hydra.run": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.sweep": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.output_subdir": "results lie in sweeps/NAME, and --name gives the name",
    "hydra.job.chdir": "every run works in the folder in which the command is given",
}


def refuse_launcher(overrides: Sequence[Override]) -> None:
    """Raise InputError for a choice of Hydra's launcher, or a key of it: Snakemake starts the runs."""
    for override in overrides:
        if override.key_or_group.startswith(("hydra/launcher", "hydra.launcher")):
            raise InputError(
                f"{override.input_line}: Hydra launches nothing here, Snakemake starts the runs. Choose where with "
                "--profile, and how many at once with --jobs"
            )


def refuse_variables(master: DictConfig) -> None:
    """Raise InputError where `hydra.job.env_set` holds variables, which would reach no run."""
    if master.hydra.job.get("env_set"):
        name = next(iter(master.hydra.job.env_set))
        raise InputError(
            f"hydra.job.env_set has no effect here, because Hydra does not start the runs: write +env.{name}=VALUE, "
            "which every run gets and which is part of its setting"
        )


def hydra_key_notes(overrides: Sequence[Override]) -> list[str]:
    """Return a sentence for each of Hydra's own keys among `overrides` that changes nothing here."""
    keys = [override.key_or_group for override in overrides if override.is_hydra_override()]
    return [f"{key} has no effect here{_instead(key)}" for key in keys if not key.startswith(_USED)]


def _instead(key: str) -> str:
    return next((f": {said}" for known, said in _INSTEAD.items() if key == known or key.startswith(f"{known}.")), "")


# Hydra's loader of configs, which keeps what it has read and composed.

SEARCHPATH = "hydra.searchpath"
"""The provider of the places that a user names. Those of the main folders are `main` and `accelsweep`."""

OURS = frozenset({"config", "base"})
"""The files that a sweep begins with. A folder on the search path may have some of these names for other programs."""


class CachedConfigs(ConfigRepository):
    """Reads each file once. Hydra copies a repository for each composition: the copies share what was read."""

    _read: dict[str, ConfigResult | None]

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Look in these folders from now on, so that nothing read elsewhere counts."""
        super().initialize_sources(config_search_path)
        self._read = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Return what the file holds, None where there is none. Nobody may change it."""
        if config_path not in self._read:
            self._read[config_path] = super().load_config(config_path)
        return self._read[config_path]

    def places(self, config_path: str) -> list[str]:
        """Return all files of this name, the one that is read first; Hydra's own are none of them."""
        having = [source for source in self.sources if source.is_config(config_path)]
        if config_path in OURS:
            having.sort(key=lambda source: source.provider == SEARCHPATH)
        outside = [source for source in having if source.provider in ("main", "accelsweep", SEARCHPATH)]
        return [f"{source.path}/{config_path}.yaml" for source in outside]

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        found = super()._find_object_source(config_path, object_type)
        if found is None or found.provider != SEARCHPATH or config_path not in OURS:
            return found
        others = (source for source in self.sources if source.provider != SEARCHPATH)
        return next((source for source in others if source.is_config(config_path)), found)

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedConfigs:
        """Return a repository that may look elsewhere later."""
        return copy.copy(self)


class CachingLoader(ConfigLoaderImpl):
    """Composes as Hydra does; a test holds both to the same configs."""

    repository: CachedConfigs

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        """`config_search_path` has the folders to look in; the first that has a file wins."""
        super().__init__(config_search_path)
        self.repository = CachedConfigs(config_search_path)
        self._chosen: dict[tuple[str, ...], tuple[DictConfig, frozenset[str]]] = {}
        self._loaded: set[str] = set()
        self.composed_of: frozenset[str] = frozenset()

    def _load_configuration_impl(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        parsed = [_parsed(line) for line in overrides]
        if validate_sweep_overrides:
            self.validate_sweep_overrides_legal(overrides=parsed, run_mode=run_mode, from_shell=from_shell)
        single = [override for override in parsed if not override.is_sweep_override()]
        choices = tuple(override.input_line or "" for override in single if self._is_choice(override))
        if choices not in self._chosen:
            self._chosen[choices] = self._by_hydra(config_name, list(choices), RunMode.MULTIRUN, False)
        kept, self.composed_of = self._chosen[choices]
        config = copy.deepcopy(kept)
        if config.hydra.searchpath or "???" in config.hydra.runtime.choices.values():
            config, self.composed_of = self._by_hydra(config_name, overrides, run_mode, from_shell)
            return config
        self._apply_overrides_to_config([override for override in single if not self._is_choice(override)], config)
        _note(parsed, config)
        return config

    def _by_hydra(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, from_shell: bool
    ) -> tuple[DictConfig, frozenset[str]]:
        """Return what Hydra itself composes, and the files that it is made of, as paths below the folders."""
        self._loaded = set()
        config = super()._load_configuration_impl(config_name, overrides, run_mode, from_shell)
        return config, frozenset(self._loaded)

    def _is_choice(self, override: Override) -> bool:
        """Return whether Hydra itself has to compose with this override: it chooses a file, or is about Hydra."""
        is_group = self.repository.group_exists(override.key_or_group)
        return override.is_hydra_override() or (is_group and not isinstance(override.value(), dict))

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        self._loaded.add(str(default.config_path))
        loaded = copy.copy(super()._load_single_config(default, repo))
        loaded.config = copy.deepcopy(loaded.config)  # merging takes nodes out of it
        return loaded


@lru_cache(maxsize=4096)
def _parsed(line: str) -> Override:
    (override,) = OverridesParser.create().parse_overrides([line])
    return override


def _note(overrides: list[Override], config: DictConfig) -> None:
    """Write into a composed config by which overrides it came about, as Hydra does."""
    hydra = config.hydra
    hydra.overrides.hydra = [override.input_line for override in overrides if override.is_hydra_override()]
    hydra.overrides.task = [override.input_line for override in overrides if not override.is_hydra_override()]
    form = hydra.job.config.override_dirname
    hydra.job.override_dirname = get_overrides_dirname(
        overrides=[override for override in overrides if not override.is_hydra_override()],
        kv_sep=form.kv_sep,
        item_sep=form.item_sep,
        exclude_keys=form.exclude_keys,
    )


CONFIG_NAME = "config"

KEPT_COMPOSITIONS = 4
"""So many composed jobs are kept: the first job is asked for again and again, and Hydra takes a tenth of a second."""

_BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"

_HYDRA_ERRORS = (
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    ValueError,
    TypeError,
    AssertionError,
    AttributeError,
    LookupError,
)


@dataclass(frozen=True)
class Grid:
    """The jobs that `--multirun` would launch: one tuple of override strings each, in its order.

    `swept` are the indices, within each job, of the overrides that had several values.
    """

    jobs: tuple[tuple[str, ...], ...]
    swept: tuple[int, ...]


class Composer:
    """Hydra set up for one working directory. `folders` are searched for files, `parse` is its grammar, cached.

    `used` are the config files that the settings of a grid were composed of, as paths below the folders.
    """

    @classmethod
    def of(cls, home: Path, overrides: Sequence[str]) -> Composer:
        """Return a composer for overrides that are given in `home`; their `hydra.searchpath` counts."""
        return cls(config_folders(home), overrides, home)

    def __init__(self, folders: Sequence[Path], overrides: Sequence[str] = (), home: Path | None = None) -> None:
        """`folders` hold the config files; the first that has a file wins. The last one is the shipped one.

        What `hydra.searchpath` in `overrides` names is searched before it: what a user has wins over what we ship.
        """
        own, shipped = list(folders[:-1]), folders[-1]
        places = [_placed(entry, home or Path.cwd()) for entry in _searchpath_in(overrides)]
        own += [Path(place.removeprefix("file://")) for place in places if place.startswith("file://")]
        refuse_exploding_aliases(own)
        version.setbase("1.3")
        setup_globals()
        Plugins.instance()
        JobRuntime().set("name", "accelsweep")
        search_path = ConfigSearchPathImpl()
        search_path.append("hydra", "pkg://hydra.conf")
        for folder in folders[:-1]:
            search_path.append("main", f"file://{folder}")
        for place in places:
            search_path.append(SEARCHPATH, place)
        search_path.append("accelsweep" if folders[:-1] else "main", f"file://{shipped}")
        search_path.append("schema", "structured://")
        self.folders = (*own, shipped)
        self.used: set[str] = set()
        self.loader = CachingLoader(search_path)
        self._parser = OverridesParser(functions=_functions(), config_loader=self.loader)
        self._parsed: dict[str, Override] = {}
        self._groups: dict[str, bool] = {}
        self._hydra_lines: tuple[str, ...] = ()
        self._files: dict[tuple[str, ...], frozenset[str]] = {}
        self._masters: dict[tuple[str, ...], DictConfig] = {}
        self._composed = lru_cache(KEPT_COMPOSITIONS)(self._read_only)

    def parse(self, line: str) -> Override:
        """Return the parsed override; raise InputError if it is not in Hydra's grammar."""
        if line not in self._parsed:
            with self._explained((line,)):
                (self._parsed[line],) = self._parser.parse_overrides([line])
            if not self._parsed[line].key_or_group:
                raise InputError(f"cannot read {line!r}: an override is KEY=VALUE")
        return self._parsed[line]

    def is_group_choice(self, override: Override) -> bool:
        """Return whether Hydra takes this override for a choice of a config group rather than for a value."""
        key = override.key_or_group
        if key not in self._groups:  # Hydra looks into every folder each time, and a grid asks for each of its settings
            self._groups[key] = self.loader.repository.group_exists(key)
        return self._groups[key] and not isinstance(override.value(), dict)

    def compose(self, lines: Sequence[str]) -> DictConfig:
        """Compose one job through Hydra, read-only, `hydra` node included; raise InputError for what is wrong."""
        return self._composed((*self._hydra_lines, *lines), RunMode.RUN)

    def compose_for_grid(self, lines: Sequence[str]) -> DictConfig:
        """Compose a job of the grid, and note the files that it is made of in `used`."""
        config = self.compose(lines)
        self.used |= self._files[(*self._hydra_lines, *lines)]
        return config

    def shadowed_files(self) -> dict[str, str]:
        """Return a sentence for each file in `used` that has a namesake: which one counts, and which do not."""
        twice = {name: found for name in sorted(self.used) if len(found := self.loader.repository.places(name)) > 1}
        return {
            name: f"{one} is used, and not {' or '.join(others)}: each is '{name}', so rename one to use the other"
            for name, (one, *others) in twice.items()
        }

    def master(self, overrides: Sequence[str]) -> DictConfig:
        """Compose what `--multirun` reads before it sweeps, read-only; sweeping overrides are left out of it."""
        overrides = [self._settable(line) for line in overrides]
        refuse_launcher([self.parse(line) for line in overrides])
        hydra_lines = (line for line in overrides if self.parse(line).is_hydra_override())
        self._hydra_lines = tuple(line for line in hydra_lines if not _names_places(line))
        if (
            key := tuple(line for line in overrides if not _names_places(line))
        ) not in self._masters:  # a composition takes Hydra a tenth of a second
            master = self._read_only(key, RunMode.MULTIRUN)
            refuse_variables(master)
            self._masters[key] = master
        return self._masters[key]

    def _settable(self, line: str) -> str:
        """Return an override of a known key as Hydra takes it, whether a file of the user's states that key or not.

        Those are the keys of the site's words on jobs, and of the baseline. So what we print, such as
        `site.slurm.max_jobs=3`, can be typed as it stands, with any site and any experiment.
        """
        override = self.parse(line)
        key = override.key_or_group
        known = (key in _site_keys() or key.startswith("baseline.")) and not override.is_delete()
        return f"++{line.lstrip('+')}" if known else line

    def grid(self, master: DictConfig) -> Grid:
        """Enumerate the jobs of `master`: the experiment's `hydra.sweeper.params`, then the overrides given to it."""
        sweeper = master.hydra.sweeper
        if sweeper.get("_target_") != _BASIC_SWEEPER:
            raise InputError(
                f"hydra/sweeper={master.hydra.runtime.choices.get('hydra/sweeper')} ({sweeper.get('_target_')}) cannot "
                "be planned: every setting must be known beforehand. Remove the hydra/sweeper override"
            )
        with self._explained(()):
            params: Any = OmegaConf.to_container(sweeper.params, resolve=True) if sweeper.params else {}
        task: Any = OmegaConf.to_container(master.hydra.overrides.task, resolve=False)
        lines = [f"{key}={value}" for key, value in params.items()] + list(task)
        overrides = [self.parse(line) for line in lines]
        most = _most_settings(master)
        _refuse_size({override.get_key_element(): self._length(override, most) for override in overrides}, most)
        with self._explained(lines):
            (jobs,) = BasicSweeper.split_arguments(overrides, None)
        sweeps = {override.get_key_element(): override.is_sweep_override() for override in overrides}
        swept = tuple(index for index, several in enumerate(sweeps.values()) if several)
        return Grid(jobs=tuple(map(tuple, jobs)), swept=swept)

    def _length(self, override: Override, most: int) -> int:
        """Return the number of an override's values, counted no further than one more than `most`."""
        if override.is_interval_sweep():
            hint = f"write {override.key_or_group}=a,b,c or range()"
            raise InputError(f"'{override.input_line}': interval() has no list of values; {hint}")
        if not override.is_sweep_override():
            return 1
        with self._explained((override.input_line or "",)):
            return sum(1 for _ in itertools.islice(override.sweep_iterator(), most + 1))
        raise AssertionError("unreachable: errors leave the block above")

    def _read_only(self, lines: tuple[str, ...], mode: RunMode) -> DictConfig:
        config = self._load(lines, mode)
        self._files[lines] = self.loader.composed_of
        for node in (config, config.hydra):
            OmegaConf.set_readonly(node, True)
        return config

    def _load(self, lines: Sequence[str], mode: RunMode) -> DictConfig:
        with self._explained(lines):
            config = self.loader.load_configuration(CONFIG_NAME, list(lines), run_mode=mode, from_shell=False)
            refuse_exploding_interpolations(config)
            return config
        raise AssertionError("unreachable: errors leave the block above")

    @contextmanager
    def _explained(self, lines: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except RecursionError:
            raise InputError(
                "the config is nested too deeply to be read: look for a value with dozens of brackets or levels, in "
                f"{' '.join(lines) or 'your files'} or below {self.folders[0]}"
            ) from None
        except _HYDRA_ERRORS as error:
            raise explain(error, lines, self.loader, self.folders) from None


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name in model.model_fields:
        yield f"{prefix}.{name}"


@cache
def _site_keys() -> frozenset[str]:
    """Return the keys of a site, those of features included."""
    keys = set(_keys(Slurm, "site.slurm"))
    for scheduler in registry.schedulers():
        keys |= set(_keys(registry.load(scheduler.options), f"site.{scheduler.name}"))
    for model in registry.config_models("site.slurm"):
        for name, field in model.model_fields.items():
            inner = next(part for part in (*get_args(field.annotation), field.annotation) if part is not type(None))
            keys |= set(_keys(inner, f"site.slurm.{name}"))
    return frozenset(keys)


def _names_places(line: str) -> bool:
    return line.partition("=")[0].strip() == "hydra.searchpath"


def _searchpath_in(overrides: Sequence[str]) -> list[str]:
    """Return the entries of the last `hydra.searchpath=[...]`; raise InputError where it is no list of texts."""
    found: list[str] = []
    for line in filter(_names_places, overrides):
        try:
            (override,) = OverridesParser.create().parse_overrides([line])
            value = override.value()
        except HydraException:
            value = None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise InputError(f"{line}: a list of folders is wanted: 'hydra.searchpath=[file://configs]'")
        found = [str(entry) for entry in value]
    return found


def _placed(entry: str, home: Path) -> str:
    """Return an entry of the search path, a folder as an absolute `file://`; raise InputError if it is not there."""
    scheme, separator, rest = entry.rpartition("://")
    if separator and scheme != "file":
        return entry  # pkg://, which Hydra looks up
    folder = home / rest
    if not folder.is_dir():
        raise InputError(f"hydra.searchpath: there is no folder {folder}")
    return f"file://{folder.resolve()}"


def _functions() -> Any:
    functions = create_functions()

    def refuse_shuffle(*_args: Any, **_options: Any) -> None:
        raise HydraException("shuffle() would give another plan each time; runs are put in random order anyway")

    functions.functions["shuffle"] = refuse_shuffle
    return functions


def _most_settings(master: DictConfig) -> int:
    """Return `limits.max_settings`, which is checked before the other limits; its default where it is no number."""
    found = OmegaConf.select(master, "limits.max_settings")
    return found if isinstance(found, int) and found > 0 else Limits().max_settings


def _refuse_size(lengths: Mapping[str, int], most: int) -> None:
    settings = math.prod(lengths.values())
    if settings > most:
        longest = max(lengths, key=lambda key: lengths[key])
        raise InputError(
            f"the grid has more than {most} settings ('{longest}' has the most values): sweep fewer at once, or raise "
            f"limits.max_settings={most} if you mean it"
        )
    if not settings:
        empty = next(key for key, length in lengths.items() if not length)
        raise InputError(f"'{empty}' is swept over no value at all, so there is no setting to run; give it one")

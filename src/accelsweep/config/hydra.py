"""Wraps Hydra for planning: finds `conf/`, enumerates a sweep exactly as `--multirun` does, and composes single points.

Only this module and `hydra_errors` use Hydra's internals, because the public API does not support sweeps. Parity tests
compare the results with `@hydra.main`. Hydra's exceptions are converted to an `InputError` with a single message.
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
from yaml import YAMLError

from accelsweep import registry
from accelsweep.config.hydra_errors import explain
from accelsweep.config.interpolation import refuse_exploding_aliases, refuse_exploding_interpolations
from accelsweep.config.site import Slurm
from accelsweep.config.sweep_options import Limits
from accelsweep.errors import InputError
from accelsweep.installation import config_folders

CONFIG_NAME = "config"

ENTRY_CONFIG_NAME = "entry"
"""The shipped root config of sweeps over the user's own training script."""

CACHED_COMPOSITIONS = 4
"""The number of compositions to cache: the first job is composed repeatedly, which takes Hydra 0.1 s each time."""

SEARCHPATH = "hydra.searchpath"
"""Hydra's key for additional config folders and their provider name; other providers are `main` and `accelsweep`."""

ROOT_FILES = frozenset({"config", "base", "entry"})
"""The root config files of a sweep. On the search path, files with these names may belong to other programs."""

_EFFECTIVE_KEYS = ("hydra.sweeper", "hydra/sweeper", SEARCHPATH, "hydra.mode")

_ALTERNATIVES = {
    "hydra.run": "results are written to sweeps/NAME; set the name with --name",
    "hydra.sweep": "results are written to sweeps/NAME; set the name with --name",
    "hydra.output_subdir": "results are written to sweeps/NAME; set the name with --name",
    "hydra.job.chdir": "every run uses the directory in which the command was started",
}

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


def hydra_key_notes(overrides: Sequence[Override]) -> list[str]:
    """Return a note for each of Hydra's own keys in `overrides` that accelsweep ignores."""
    notes = []
    for override in overrides:
        key = override.key_or_group
        if override.is_hydra_override() and not key.startswith(_EFFECTIVE_KEYS):
            alternatives = (text for known, text in _ALTERNATIVES.items() if f"{key}.".startswith(f"{known}."))
            alternative = next(alternatives, None)
            notes.append(f"{key} has no effect here" + (f": {alternative}" if alternative else ""))
    return notes


class CachedConfigs(ConfigRepository):
    """A config repository that reads each file only once.

    Hydra copies the repository for each composition; the copies share the cache.
    """

    _cache: dict[str, ConfigResult | None]

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Switch to these folders and clear the cache."""
        super().initialize_sources(config_search_path)
        self._cache = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Return the file's contents, which must not be modified; None if there is no such file."""
        if config_path not in self._cache:
            self._cache[config_path] = super().load_config(config_path)
        return self._cache[config_path]

    def same_named_files(self, config_path: str) -> list[str]:
        """Return all files with this name, the effective one first; Hydra's own files are not listed."""
        sources = [source for source in self.sources if source.is_config(config_path)]
        if config_path in ROOT_FILES:
            sources.sort(key=lambda source: source.provider == SEARCHPATH)
        listed = [source for source in sources if source.provider in ("main", "accelsweep", SEARCHPATH)]
        return [f"{source.path}/{config_path}.yaml" for source in listed]

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> ConfigSource | None:
        source = super()._find_object_source(config_path, object_type)
        if source is None or source.provider != SEARCHPATH or config_path not in ROOT_FILES:
            return source
        others = (other for other in self.sources if other.provider != SEARCHPATH)
        return next((other for other in others if other.is_config(config_path)), source)

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedConfigs:
        """Return a copy that shares the cache but has its own mutable search path."""
        return copy.copy(self)


class CachingLoader(ConfigLoaderImpl):
    """Composes like Hydra, but only once per combination of config group choices; a test compares the results."""

    repository: CachedConfigs

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = CachedConfigs(config_search_path)
        self._composed: dict[tuple[str, ...], tuple[DictConfig, frozenset[str]]] = {}
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
        key = (config_name or "", *choices)
        if key not in self._composed:
            self._composed[key] = self._by_hydra(config_name, list(choices), RunMode.MULTIRUN, False)
        cached, self.composed_of = self._composed[key]
        config = copy.deepcopy(cached)
        if config.hydra.searchpath or "???" in config.hydra.runtime.choices.values():
            config, self.composed_of = self._by_hydra(config_name, overrides, run_mode, from_shell)
            return config
        self._apply_overrides_to_config([override for override in single if not self._is_choice(override)], config)
        _record_overrides(parsed, config)
        return config

    def _by_hydra(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, from_shell: bool
    ) -> tuple[DictConfig, frozenset[str]]:
        """Return Hydra's own composition and the files it used, as paths relative to the folders."""
        self._loaded = set()
        config = super()._load_configuration_impl(config_name, overrides, run_mode, from_shell)
        return config, frozenset(self._loaded)

    def _is_choice(self, override: Override) -> bool:
        """Return whether Hydra itself must compose this override: it selects a file or is one of Hydra's keys."""
        is_group = self.repository.group_exists(override.key_or_group)
        return override.is_hydra_override() or (is_group and not isinstance(override.value(), dict))

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        self._loaded.add(str(default.config_path))
        return super()._load_single_config(default, repo)

    @staticmethod
    def _embed_result_config(ret: ConfigResult, package_override: str | None) -> ConfigResult:
        embedded = ConfigLoaderImpl._embed_result_config(ret, package_override)
        if embedded is ret:  # otherwise it is a copy already
            embedded = copy.copy(ret)
            embedded.config = copy.deepcopy(ret.config)  # merging removes nodes from the config
        return embedded


@lru_cache(maxsize=4096)
def _parsed(line: str) -> Override:
    (override,) = OverridesParser.create().parse_overrides([line])
    return override


def _record_overrides(overrides: list[Override], config: DictConfig) -> None:
    """Record the overrides in a composed config, as Hydra does."""
    hydra = config.hydra
    task = [override for override in overrides if not override.is_hydra_override()]
    hydra.overrides.hydra = [override.input_line for override in overrides if override.is_hydra_override()]
    hydra.overrides.task = [override.input_line for override in task]
    form = hydra.job.config.override_dirname
    hydra.job.override_dirname = get_overrides_dirname(
        overrides=task, kv_sep=form.kv_sep, item_sep=form.item_sep, exclude_keys=form.exclude_keys
    )


@dataclass(frozen=True)
class Grid:
    """The jobs that `--multirun` would launch, in the same order, each as a tuple of override strings.

    `swept` lists the indices, within each job, of the overrides that had several values.
    """

    jobs: tuple[tuple[str, ...], ...]
    swept: tuple[int, ...]


class Composer:
    """Hydra, set up for one working directory.

    `folders` are searched for config files. `used` contains the files from which a grid's settings were composed, as
    paths relative to the folders.
    """

    @classmethod
    def of(cls, home: Path, overrides: Sequence[str]) -> Composer:
        """Return a composer for overrides used in `home`, including the folders in their `hydra.searchpath`."""
        return cls(config_folders(home), overrides, home)

    def __init__(
        self,
        folders: Sequence[Path],
        overrides: Sequence[str] = (),
        home: Path | None = None,
        config_name: str = CONFIG_NAME,
        fallback: Sequence[Path] = (),
    ) -> None:
        """Create a composer for the root config `config_name` and the other config files in `folders`.

        The first folder that contains a file takes precedence; the last one is the shipped folder. The folders in
        `hydra.searchpath` are searched before the shipped folder, so the user's files override the shipped files. The
        folders in `fallback` are searched last, for files that are not shipped.
        """
        users, shipped = list(folders[:-1]), folders[-1]
        entries = [_absolute_entry(entry, home or Path.cwd()) for entry in _searchpath_in(overrides)]
        users += [Path(entry.removeprefix("file://")) for entry in entries if entry.startswith("file://")]
        refuse_exploding_aliases(users)
        version.setbase("1.3")
        setup_globals()
        Plugins.instance()
        JobRuntime().set("name", "accelsweep")
        search_path = ConfigSearchPathImpl()
        search_path.append("hydra", "pkg://hydra.conf")
        for folder in folders[:-1]:
            search_path.append("main", f"file://{folder}")
        for entry in entries:
            search_path.append(SEARCHPATH, entry)
        search_path.append("accelsweep" if folders[:-1] else "main", f"file://{shipped}")
        for folder in fallback:
            search_path.append("main", f"file://{folder}")
        search_path.append("schema", "structured://")
        self.folders = (*users, shipped, *fallback)
        self._config_name = config_name
        self.used: set[str] = set()
        self.loader = CachingLoader(search_path)
        self._parser = OverridesParser(functions=_functions(), config_loader=self.loader)
        self._parsed: dict[str, Override] = {}
        self._groups: dict[str, bool] = {}
        self._hydra_lines: tuple[str, ...] = ()
        self._files: dict[tuple[str, ...], frozenset[str]] = {}
        self._masters: dict[tuple[str, ...], DictConfig] = {}
        self._composed = lru_cache(CACHED_COMPOSITIONS)(self._read_only)

    def parse(self, line: str) -> Override:
        """Parse an override; raise InputError if it does not match Hydra's grammar."""
        if line not in self._parsed:
            with self._explained((line,)):
                (self._parsed[line],) = self._parser.parse_overrides([line])
            if not self._parsed[line].key_or_group:
                raise InputError(f"cannot read {line!r}: an override is KEY=VALUE")
        return self._parsed[line]

    def is_group_choice(self, override: Override) -> bool:
        """Return whether Hydra interprets this override as a config group choice rather than a value."""
        key = override.key_or_group
        if key not in self._groups:  # Hydra searches every folder on each call, and a grid makes one call per setting
            self._groups[key] = self.loader.repository.group_exists(key)
        return self._groups[key] and not isinstance(override.value(), dict)

    def compose(self, lines: Sequence[str]) -> DictConfig:
        """Compose one job, read-only and including the `hydra` node; raise InputError for any error in it."""
        return self._composed((*self._hydra_lines, *lines), RunMode.RUN)

    def compose_for_grid(self, lines: Sequence[str]) -> DictConfig:
        """Compose one of the grid's jobs and add its files to `used`."""
        config = self.compose(lines)
        self.used |= self._files[(*self._hydra_lines, *lines)]
        return config

    def shadowed_files(self) -> dict[str, str]:
        """Return a note for each name in `used` shared by several files: which file is used, and which are not."""
        notes = {}
        for name in sorted(self.used):
            file, *shadowed = self.loader.repository.same_named_files(name) or ("",)
            if shadowed:
                notes[name] = (
                    f"{file} is used instead of {' or '.join(shadowed)}: all are named '{name}', "
                    "so rename one to use the other"
                )
        return notes

    def master(self, overrides: Sequence[str]) -> DictConfig:
        """Return Hydra's master config for a multirun, read-only and without the sweep overrides."""
        overrides = [self._forced_if_known(line) for line in overrides]
        for override in map(self.parse, overrides):
            if override.key_or_group.startswith(("hydra/launcher", "hydra.launcher")):
                raise InputError(
                    f"{override.input_line}: Hydra launches nothing here; Snakemake starts the runs. Choose where with "
                    "--profile, and how many at once with --jobs"
                )
        key = tuple(line for line in overrides if not _is_searchpath(line))
        self._hydra_lines = tuple(line for line in key if self.parse(line).is_hydra_override())
        if key not in self._masters:
            master = self._read_only(key, RunMode.MULTIRUN)
            if variables := master.hydra.job.get("env_set"):
                raise InputError(
                    "hydra.job.env_set has no effect here, because Hydra does not start the runs: write "
                    f"+env.{next(iter(variables))}=VALUE, which is passed to every run and is part of its setting"
                )
            self._masters[key] = master
        return self._masters[key]

    def _forced_if_known(self, line: str) -> str:
        """Prefix an override of a job option or the baseline with `++`, which works even if no config file sets it.

        Overrides in printed messages, such as `site.slurm.max_jobs=3`, thus work for any site and experiment.
        """
        override = self.parse(line)
        key = override.key_or_group
        known = (key in _job_option_keys() or key.startswith("baseline.")) and not override.is_delete()
        return f"++{line.lstrip('+')}" if known else line

    def grid(self, master: DictConfig) -> Grid:
        """Enumerate the jobs in `master`: the experiment's `hydra.sweeper.params`, followed by the user's overrides."""
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
        max_settings = OmegaConf.select(master, "limits.max_settings")  # the limits have not been checked yet
        if not isinstance(max_settings, int) or max_settings <= 0:
            max_settings = Limits().max_settings
        lengths = {override.get_key_element(): self._length(override, max_settings) for override in overrides}
        _refuse_size(lengths, max_settings)
        with self._explained(lines):
            (jobs,) = BasicSweeper.split_arguments(overrides, None)
        sweeps = {override.get_key_element(): override.is_sweep_override() for override in overrides}
        swept = tuple(index for index, is_swept in enumerate(sweeps.values()) if is_swept)
        return Grid(jobs=tuple(map(tuple, jobs)), swept=swept)

    def _length(self, override: Override, most: int) -> int:
        """Return the number of values in an override, counting no further than `most` + 1."""
        if override.is_interval_sweep():
            hint = f"write {override.key_or_group}=a,b,c or range()"
            raise InputError(f"'{override.input_line}': interval() does not define a list of values; {hint}")
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
            config = self.loader.load_configuration(self._config_name, list(lines), run_mode=mode, from_shell=False)
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


@cache
def _job_option_keys() -> frozenset[str]:
    """Return the config keys for a site's job options, including those of features."""
    keys = {f"site.slurm.{name}" for name in Slurm.model_fields}
    for scheduler in registry.schedulers():
        keys |= {f"site.{scheduler.name}.{name}" for name in registry.load(scheduler.options).model_fields}
    for model in registry.config_models("site.slurm"):
        for name, field in model.model_fields.items():
            nested = next(part for part in (*get_args(field.annotation), field.annotation) if part is not type(None))
            keys |= {f"site.slurm.{name}.{inner}" for inner in nested.model_fields}
    return frozenset(keys)


def _is_searchpath(line: str) -> bool:
    return line.partition("=")[0].strip() == SEARCHPATH


def _searchpath_in(overrides: Sequence[str]) -> list[str]:
    """Return the entries of the last `hydra.searchpath=[...]`; raise InputError if it is not a list of strings."""
    entries: list[str] = []
    for line in filter(_is_searchpath, overrides):
        try:
            value = _parsed(line).value()
        except HydraException:
            value = None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise InputError(f"{line}: expected a list of folders: 'hydra.searchpath=[file://configs]'")
        entries = [str(entry) for entry in value]
    return entries


def _absolute_entry(entry: str, home: Path) -> str:
    """Convert a folder on the search path to an absolute `file://` URL; leave entries such as `pkg://` unchanged.

    Raises InputError if the folder does not exist.
    """
    scheme, separator, rest = entry.rpartition("://")
    if separator and scheme != "file":
        return entry  # Hydra resolves pkg://
    folder = home / rest
    if not folder.is_dir():
        raise InputError(f"hydra.searchpath: there is no folder {folder}")
    return f"file://{folder.resolve()}"


def _functions() -> Any:
    """Return the functions in Hydra's override grammar, with `shuffle()` rejected."""
    functions = create_functions()

    def refuse_shuffle(*_args: Any, **_options: Any) -> None:
        raise HydraException("shuffle() would produce a different plan each time; runs are put in random order anyway")

    functions.functions["shuffle"] = refuse_shuffle
    return functions


def _refuse_size(lengths: Mapping[str, int], most: int) -> None:
    settings = math.prod(lengths.values())
    if settings > most:
        longest = max(lengths, key=lambda key: lengths[key])
        raise InputError(
            f"the grid has more than {most} settings ('{longest}' has the most values): sweep fewer values, or raise "
            f"limits.max_settings={most} if this is intended"
        )
    if not settings:
        empty = next(key for key, length in lengths.items() if not length)
        raise InputError(f"'{empty}' is swept over an empty list, so there is no setting to run; give it a value")

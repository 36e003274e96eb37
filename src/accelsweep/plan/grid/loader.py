"""Hydra's loader of configs, which keeps what it has read and composed.

A plan composes almost the same again and again: before it sweeps, for its first job, for each choice of a group. Each
combination of groups' choices is composed once, by Hydra, from files that are read once. Values are set in a copy of
it.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig

SEARCHPATH = "hydra.searchpath"
"""The provider of the places that a user names. Those of the main folders are `main` and `accelsweep`."""

OURS = frozenset({"config", "base"})
"""The files that a sweep begins with. A folder on the search path may have some of these names for other programs."""


class KeptFiles(ConfigRepository):
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

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptFiles:
        """Return a repository that may look elsewhere later."""
        return copy.copy(self)


class KeepingLoader(ConfigLoaderImpl):
    """Composes as Hydra does; a test holds both to the same configs."""

    repository: KeptFiles

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        """`config_search_path` has the folders to look in; the first that has a file wins."""
        super().__init__(config_search_path)
        self.repository = KeptFiles(config_search_path)
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

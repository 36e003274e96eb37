"""Prepare the data before the first run: call each data module's `prepare_data` once, on a machine with network access.

Snakemake's main process has this done before it starts jobs, since compute nodes may be offline. A data module that
fails at this point does not stop the sweep, because its own runs will report the failure.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from typing import Any

from accelsweep import registry
from accelsweep.config.setting import with_full_paths
from accelsweep.errors import DamagedFile
from accelsweep.executor.code_versions import CodeVersion, CodeVersions
from accelsweep.files import read_regular, write_bytes_atomically
from accelsweep.plain_json import canonical_json, parse_json, sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_blocks
from accelsweep.run_config import SettingConfig
from accelsweep.worker.rank_setup import set_up_imports

GENERATED_DATA = frozenset(
    {"accelsweep.workloads.datasets.Digits"}
    | {f"accelsweep.workloads.datasets.{name}" for name in ("Mnist", "Cifar10")}
    | {f"accelsweep.workloads.datasets.Random{kind}" for kind in ("Images", "Text", "Tokens", "Vectors")}
)
"""Our own data modules without `prepare_data`, listed to avoid importing torch. Features add their own."""


def prepare(folder: SweepFolder) -> list[str]:
    """Call `prepare_data` on every data module that is not yet prepared; return the digests of all prepared modules."""
    ready, pending = _ready_and_pending(folder)
    if pending:
        ready += _prepare_by_version(pending, CodeVersions(folder))
        write_bytes_atomically(folder.prepared, canonical_json(sorted(ready)).encode())
    return sorted(ready)


def is_prepared(folder: SweepFolder) -> bool:
    """Return whether `prepare` would have nothing to do. Imports neither torch nor user code."""
    _, pending = _ready_and_pending(folder)
    return not pending


def _ready_and_pending(folder: SweepFolder) -> tuple[list[str], dict[str, SettingConfig]]:
    """Return the digests of preparations that are done or not needed, and the configs of the others."""
    configs, already = _data_configs(folder, Manifest.read(folder.manifest)), _read_prepared(folder)
    ready = [digest for digest, config in configs.items() if digest in already or _needs_no_preparation(config)]
    return ready, {digest: config for digest, config in configs.items() if digest not in ready}


def _data_configs(folder: SweepFolder, manifest: Manifest) -> dict[str, SettingConfig]:
    """Return one config for each distinct preparation, keyed by the digest of everything that determines it."""
    configs: dict[str, SettingConfig] = {}
    for block in readable_blocks(folder, manifest):
        for config in block.configs.values():
            if config.entry is not None:
                continue  # the user's script prepares its own data
            key = [config.data, _module_key(config), manifest.sources]
            if config.version_id is not None:
                key.append(config.version_id)
            configs[sha256_text(canonical_json(key))] = with_full_paths(config, folder.home)
    return configs


def _module_key(config: SettingConfig) -> Any:
    """Return what may affect preparation in a user module: its class, or its whole config if it also provides data."""
    if config.model_target.startswith("accelsweep."):
        return None
    return config.model if config.data_from_module else config.model_target


def _needs_no_preparation(config: SettingConfig) -> bool:
    generated = GENERATED_DATA.union(*(feature.generated_data for feature in registry.features()))
    return config.model_target.startswith("accelsweep.") and config.data_target in generated


def _read_prepared(folder: SweepFolder) -> list[str]:
    try:
        digests = parse_json(read_regular(folder.prepared).decode())
    except (FileNotFoundError, DamagedFile, ValueError):
        return []
    return digests if isinstance(digests, list) else []


def _prepare_by_version(configs: Mapping[str, SettingConfig], versions: CodeVersions) -> list[str]:
    """Prepare the data of each code version in its own process, because their modules have the same names."""
    groups: dict[str | None, dict[str, SettingConfig]] = {}
    for digest, config in configs.items():
        groups.setdefault(config.version_id, {})[digest] = config
    done = _prepare_here(groups.pop(None, {}))
    for group in groups.values():
        version = versions.get(next(iter(group.values())))
        if version is not None:
            done += _prepare_in_fork(group, version)
    return done


def _prepare_in_fork(configs: Mapping[str, SettingConfig], version: CodeVersion) -> list[str]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if not version.needs_spawn:  # otherwise the data is prepared with the modules of this process
                os.environ.update(version.environment)
            with os.fdopen(write_end, "w") as pipe:
                pipe.write("\n".join(_prepare_here(configs)))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        done = pipe.read().splitlines()
    os.waitpid(child, 0)
    return done


def _prepare_here(configs: Mapping[str, SettingConfig]) -> list[str]:
    if not configs:
        return []
    from accelsweep.workloads.instantiate import prepare_data

    set_up_imports()
    done = []
    for digest, config in configs.items():
        try:
            prepare_data(config)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - the user's code may raise anything; its runs will report it too
            traceback.print_exc()
        else:
            done.append(digest)
    return done

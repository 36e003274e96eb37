"""Preparation before the first run: each data module's `prepare_data`, called once, on a machine with a network.

Snakemake's main process does this before it starts jobs, since compute nodes may be offline. A data module that fails
here does not stop the sweep. Its runs will report the failure, and the others go on.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from typing import Any

from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import brings_own_data, placed
from accelsweep.errors import DamagedFile
from accelsweep.executor.result_reuse import VersionAtHand, Versions
from accelsweep.json_documents import canonical_json, parsed_json, read_whole, sha256_text, write_bytes_atomically
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_blocks
from accelsweep.worker.rank_setup import OwnTree

MADE_IN_MEMORY = frozenset(
    {"accelsweep.workloads.datasets.Digits", "accelsweep.workloads.boosting.made_rows.MadeRows"}
    | {f"accelsweep.workloads.datasets.{name}" for name in ("Mnist", "Cifar10")}
    | {f"accelsweep.workloads.datasets.Random{kind}" for kind in ("Images", "Text", "Tokens", "Vectors")}
)
"""Data of ours without preparation: a sweep of them begins seconds earlier, because torch is not imported."""


def prepare(folder: SweepFolder) -> list[str]:
    """Call `prepare_data` of every unprepared data module; return the digests of those that are prepared now."""
    manifest = Manifest.read(folder.manifest)
    waiting, known = _data_configs(folder, manifest), _ready(folder)
    ready = [digest for digest, config in waiting.items() if digest in known or _has_nothing_to_prepare(config)]
    for digest in ready:
        del waiting[digest]
    if waiting:
        ready += _prepared_each(waiting, Versions(folder))
        write_bytes_atomically(folder.prepared, canonical_json(sorted(ready)).encode())
    return sorted(ready)


def _data_configs(folder: SweepFolder, manifest: Manifest) -> dict[str, CellConfig]:
    """Return one whole config for each distinct preparation, by the digest of the values that decide it."""
    distinct: dict[str, CellConfig] = {}
    for block in readable_blocks(folder, manifest):
        for config in block.configs.values():
            decisive = [config.data, _module_part(config), manifest.sources]
            name = config.version_id
            distinct[sha256_text(canonical_json(decisive if name is None else [*decisive, name]))] = placed(
                config, folder.home
            )
    return distinct


def _module_part(config: CellConfig) -> Any:
    """Return the part of a user's module that may decide the preparation: its class, or all of it if it is the data."""
    if config.model_target.startswith("accelsweep."):
        return None
    return config.model if brings_own_data(config) else config.model_target


def _has_nothing_to_prepare(config: CellConfig) -> bool:
    return config.model_target.startswith("accelsweep.") and config.data_target in MADE_IN_MEMORY


def _ready(folder: SweepFolder) -> list[str]:
    try:
        found = parsed_json(read_whole(folder.prepared).decode())
    except (FileNotFoundError, DamagedFile, ValueError):
        return []
    return found if isinstance(found, list) else []


def _prepared_each(configs: Mapping[str, CellConfig], versions: Versions) -> list[str]:
    """Prepare the data of each version in a process of its own: modules of two versions have the same names."""
    parts: dict[str | None, dict[str, CellConfig]] = {}
    for digest, config in configs.items():
        parts.setdefault(config.version_id, {})[digest] = config
    done = _prepared(parts.pop(None, {}))
    for part in parts.values():
        version = versions.of(next(iter(part.values())))
        if version is not None:
            done += _prepared_apart(part, version)
    return done


def _prepared_apart(configs: Mapping[str, CellConfig], version: VersionAtHand) -> list[str]:
    """Prepare the data of one version in a forked child; return the digests of what is ready."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if not version.needs_own_interpreter:  # else its data is prepared by the modules that are here
                os.environ.update(version.environment)
            if (own_tree := OwnTree.of_this_run()) is not None:
                own_tree.put_first()
            with os.fdopen(theirs, "w") as answer:
                answer.write("\n".join(_prepared(configs)))
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        done = answer.read().splitlines()
    os.waitpid(child, 0)
    return done


def _prepared(configs: Mapping[str, CellConfig]) -> list[str]:
    if not configs:
        return []
    from accelsweep.workloads.instantiate import add_working_directory_to_path, prepare_data

    if OwnTree.of_this_run() is None:
        add_working_directory_to_path()
    done = []
    for digest, config in configs.items():
        try:
            prepare_data(config)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - the user's code may do anything; its runs will say so too
            traceback.print_exc()
        else:
            done.append(digest)
    return done

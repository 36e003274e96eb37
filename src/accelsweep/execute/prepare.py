"""What must be on disk before the first run: each data module's `prepare_data`, called once, where there is a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from accelsweep.core.documents import canonical_json, write_bytes_atomically
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Block, Manifest


def data_configs(folder: SweepFolder) -> list[dict[str, Any]]:
    """Return the distinct `data` configs of the sweep's blocks, in a stable order."""
    manifest = Manifest.read(folder.manifest)
    distinct: dict[str, dict[str, Any]] = {}
    for planned in manifest.blocks:
        for config in Block.read(folder.block(planned.name)).configs.values():
            distinct[canonical_json(config["data"])] = config
    return [distinct[key] for key in sorted(distinct)]


def prepare(folder: SweepFolder) -> int:
    """Call `prepare_data` of every distinct data module; return how many there were."""
    from accelsweep.workloads.build import build_data, make_importable

    make_importable()
    configs = data_configs(folder)
    for config in configs:
        build_data(config, seed=config["seed"]).prepare_data()
    return len(configs)


def main(manifest: Path, marker: Path) -> None:
    """Prepare the sweep of `manifest` and write `marker`."""
    root = manifest.resolve().parent
    count = prepare(SweepFolder(root.parents[1], root.name))
    write_bytes_atomically(marker, canonical_json({"data_modules": count}).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""What a fault does to one file, and which files there are to choose from."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

DAYS_SECONDS = 2 * 24 * 3600.0

PATTERNS = {
    "record": "sweeps/*/runs/*/record.json",
    "steps": "sweeps/*/runs/*/steps.parquet",
    "run log": "sweeps/*/runs/*/run.log",
    "attempt": "sweeps/*/runs/*/attempts/*/*",
    "done file": "sweeps/*/blocks/*.done.json",
    "block": "sweeps/*/blocks/b????????????.json",
    "manifest": "sweeps/*/manifest.json",
    "revision": "sweeps/*/revisions/*.json",
    "findings": "sweeps/*/findings.json",
    "table": "sweeps/*/records.parquet",
    "completed": "sweeps/*/completed.json",
    "published": "sweeps/*/published.json",
    "prepared": "sweeps/*/prepared.json",
    "halt": "sweeps/*/blocks/*.halt.json",
    "hold": "sweeps/*/**/*.lock.json",
    "log": "sweeps/*/logs/*.log",
    "job's log": "slurm-logs/*/*/*.log",
    "report": "reports/*/*",
    "MLflow's store": "mlflow.db",
    "Snakemake's notes": ".snakemake/**/*",
}

FOLDERS = {
    "run": "sweeps/*/runs/*",
    "attempts": "sweeps/*/runs/*/attempts",
    "blocks": "sweeps/*/blocks",
    "logs": "sweeps/*/logs",
    "reports": "reports/*",
    "Snakemake's folder": ".snakemake",
}


def chosen(home: Path, whom: str, dice: random.Random) -> Path | None:
    """Return one file of this kind below `home`, or None where there is none."""
    found = sorted(path for path in home.glob(PATTERNS[whom]) if path.is_file())
    return dice.choice(found) if found else None


def chosen_folder(home: Path, whom: str, dice: random.Random) -> Path | None:
    """Return one folder of this kind below `home`, or None where there is none."""
    found = sorted(home.glob(FOLDERS[whom]))
    return dice.choice(found) if found else None


def damage(path: Path, how: str, dice: random.Random, old: Path | None) -> bool:
    """Do this to the file at `path`; return whether anything changed. `old` is its content of an earlier time."""
    if how == "made unreadable":
        if os.geteuid() == 0:
            pytest.skip("root can read what nobody may read")
        path.chmod(0)
    elif how.startswith("stamped"):
        stamp = time.time() + (DAYS_SECONDS if how.endswith("future") else -DAYS_SECONDS)
        os.utime(path, (stamp, stamp))
    elif how == "old content restored":
        if old is None or not old.is_file():
            return False
        shutil.copyfile(old, path)
    elif how.startswith("made"):
        _replace(path, how)
    else:
        return _alter(path, how, dice)
    return True


def _replace(path: Path, how: str) -> None:
    path.unlink()
    if how == "made a folder":
        path.mkdir()
        (path / "within").write_text("not ours")
    elif how == "made a FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


def _alter(path: Path, how: str, dice: random.Random) -> bool:
    if how == "deleted":
        path.unlink()
        return True
    size = path.stat().st_size
    if size < 2:
        return False
    with path.open("r+b") as file:  # in place: the writer of a log goes on writing to it
        if how == "emptied":
            file.truncate(0)
        elif how == "cut short":
            file.truncate(dice.randrange(1, size))
        else:
            file.seek(dice.randrange(size))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1 << dice.randrange(8)]))
    return True

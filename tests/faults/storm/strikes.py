"""What each kind of fault does to a storm. A strike returns whether it met something."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
from damages import DAYS_SECONDS, chosen, chosen_folder, damage
from grammar import DAMAGES, Fault
from promises import check_words
from record_audit import mounted
from scene import Scene

if TYPE_CHECKING:
    from storm import Storm

    Strike = Callable[[Storm, Fault, Scene | None], bool]

COMMAND = ["run", "experiment=tiny", "repeats=2"]


def strike_of(fault: Fault) -> Strike:
    """Return what this fault does."""
    return _damage if fault.what in DAMAGES else _OTHERS.get(fault.what, _signal)


def _signal(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    assert scene is not None
    victim = scene.find(fault.whom)
    if victim is None:
        return False
    storm.log.append(f"{fault.what} to {fault.whom}, process {victim.pid}")
    with suppress(psutil.NoSuchProcess):
        if fault.what == "SIGSTOP":
            victim.suspend()
            time.sleep(0.5 + 2.0 * (fault.dice % 100) / 100)
            victim.resume()
        else:
            name, _, twice = fault.what.partition(" ")
            victim.send_signal(signal.Signals[name])
            if twice:
                time.sleep(0.3 * (fault.dice % 100) / 100)
                victim.send_signal(signal.Signals[name])
    return True


def _damage(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    dice = random.Random(fault.dice)
    path = chosen(storm.home, fault.whom, dice)
    if path is None:
        return False
    if not fault.what.startswith("stamped"):
        storm.ledger.forgive(path)
    old = storm.place.base / path.relative_to(storm.home)
    storm.log.append(f"{fault.what}: {path.relative_to(storm.home)}")
    storm.damaged |= scene is not None  # perhaps after its last use
    storm.store_damaged |= fault.whom == "MLflow's store"
    return damage(path, fault.what, dice, old)


def _folder_deleted(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    path = chosen_folder(storm.home, fault.whom, random.Random(fault.dice))
    if path is None:
        return False
    storm.log.append(f"deleted: {path.relative_to(storm.home)}")
    storm.ledger.forgive(path / "record.json")
    storm.damaged |= scene is not None
    shutil.rmtree(path, ignore_errors=True)
    return True


def _beside(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    arguments = {
        "clean": ["clean", storm.name, "--yes"],
        "run": COMMAND,
        "retry": ["retry", storm.name, "--outcome", "measured"],
    }
    command = [sys.executable, "-m", "accelsweep", *arguments.get(fault.whom, [fault.whom, storm.name])]
    done = subprocess.run(
        command, cwd=storm.home, env=storm.place.environment(), capture_output=True, text=True, check=False, timeout=200
    )
    said = done.stdout + done.stderr
    storm.log.append(f"beside it: accelsweep {fault.whom} -> {done.returncode}\n{said}")
    check_words(done.returncode, said)
    if done.returncode == 0 and fault.whom in ("clean", "retry"):  # it came after the driver's end
        storm.ledger.settled.clear()
    return True


def _full_disk(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.log.append("the disk is full")
    storm.until_it_ends.callback((storm.home / "ballast").unlink, missing_ok=True)
    with suppress(OSError), (storm.home / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with suppress(OSError), (storm.home / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"x")
    return True


def _read_only(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.until_it_ends.enter_context(mounted(storm.home, "ro"))
    return True


def _home_moved(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    storm.home = storm.home.rename(storm.place.folder / "home-elsewhere")
    return True


def _sweep_renamed(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    if not storm.folder.root.exists():
        return False
    storm.folder.root.rename(storm.folder.root.with_name("renamed"))
    storm.name = "renamed"
    return True


def _stamp(storm: Storm, fault: Fault, scene: Scene | None) -> bool:
    stamp = time.time() + (DAYS_SECONDS if fault.what.endswith("future") else -DAYS_SECONDS)
    for path in sorted(storm.home.rglob("*"), reverse=True):
        os.utime(path, (stamp, stamp), follow_symlinks=False)
    return True


_OTHERS: dict[str, Strike] = {
    "folder deleted": _folder_deleted,
    "at the same time": _beside,
    "disk full": _full_disk,
    "disk read-only": _read_only,
    "home moved": _home_moved,
    "sweep renamed": _sweep_renamed,
    "all stamped in the future": _stamp,
    "all stamped in the past": _stamp,
}

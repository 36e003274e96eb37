"""One try after another at sweeps, archives and configs that somebody made to harm, each made of its number alone.

A try changes a file of a small finished sweep, and reads it as commands do. The file must be read, set aside by
name, or refused by name, under the watch of `guard`. Anything else is a crash. `make fuzz` makes many tries.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fuzzed import HEAVY, KINDS, LIGHT, READERS
from side_effect_guard import Forbidden, watched
from small_sweep import unpack_small_sweep

from accelsweep.errors import AccelsweepError
from accelsweep.features.archives.command import import_archive
from accelsweep.planning.plan import make_plan
from accelsweep.records.layout import SweepFolder

CONFIG = """\
# @package _global_
defaults:
  - override /model: mlp
hydra:
  sweeper:
    params:
      batch_size: 16,32
accelerator: cpu
repeats: 2
measure:
  min_steps: 10
"""
GROUP = "_target_: accelsweep.workloads.image_models.MLP\nwidth: 8\ndepth: 2\n"


@dataclass(frozen=True)
class Bench:
    """What every try starts from: a home with a whole sweep, its report and its archive. It is copied, not changed."""

    home: Path

    @classmethod
    def made(cls, home: Path) -> Bench:
        """Make it below `home`, and read all of it once, so that nothing is imported later."""
        folder = unpack_small_sweep(home)
        (home / "conf" / "experiment").mkdir(parents=True)
        (home / "conf" / "model").mkdir()
        (home / "conf" / "experiment" / "mine.yaml").write_text(CONFIG)
        (home / "conf" / "model" / "mine.yaml").write_text(GROUP)
        with contextlib.redirect_stdout(io.StringIO()):
            for name in (*LIGHT, *HEAVY):
                READERS[name](folder)
            make_plan(home, ["experiment=mine", "model=mine"])
            (home / "there").mkdir()
            import_archive(home / "there", home / "again.zip", None)
        shutil.rmtree(home / "there")
        return cls(home)


def kind_of(number: int) -> str:
    """Return the kind of the file that try `number` changes."""
    return tuple(KINDS)[number % len(KINDS)]


def one_try(bench: Bench, number: int, below: Path) -> str:
    """Return what became of the file that try `number` changes: `read`, `set aside`, `refused`.

    Raises whatever else comes of it.
    """
    home = below / "home"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(bench.home, home)
    read = KINDS[kind_of(number)](SweepFolder(home, "old"), random.Random(number))
    said, usual = io.StringIO(), tempfile.tempdir
    tempfile.tempdir = str(below)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), watched(below):
            read()
    except (AccelsweepError, OSError) as error:
        if isinstance(error, OSError) and error.filename is None:
            raise
        return "refused"
    finally:
        tempfile.tempdir = usual
    found = (name for _, folders, files in os.walk(below) for name in (*folders, *files))
    if any(name.startswith("canary") for name in found):
        raise Forbidden("the canary flew")
    drawn = [path.read_text() for path in home.glob("reports/*/*") if path.suffix in (".html", ".svg")]
    if any("<script>canary" in page for page in drawn) or "\x1b[31m" in said.getvalue():
        raise Forbidden("what a file held became a page's script, or a terminal's command")
    return "set aside" if any(home.rglob("*.damaged-*")) else "read"

"""One try after another at sweeps, archives and configs that somebody made to harm, each made of its number alone.

A try changes a file of a released version's sweep, and reads it as commands do. The file must be read, set aside by
name, or refused by name, under the watch of `guard`. Anything else is a crash. `make fuzz` makes many tries.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from archives import contents_of, members, relisted
from guard import Forbidden, watched
from mutations import changed_json, changed_yaml, damaged
from released import PACKED, unpacked

import accelsweep
from accelsweep.base.documents import sha256_file
from accelsweep.base.errors import AccelsweepError
from accelsweep.commands.compare import compare_sweeps
from accelsweep.commands.exchange.archives import export_sweep, import_archive
from accelsweep.commands.runs import print_runs
from accelsweep.commands.status import print_status
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.drive.finish import report
from accelsweep.plan.make import make_plan
from accelsweep.publish import snapshot
from accelsweep.state.folders import SweepFolder
from accelsweep.supervise.standing.audit import audit

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
GROUP = "_target_: accelsweep.workloads.models.MLP\nwidth: 8\ndepth: 2\n"
Reader = Callable[[SweepFolder], object]
Change = Callable[[SweepFolder, random.Random], Callable[[], object]]
"""Changes a file in a sweep's folder, and returns what reads it."""


def opened(folder: SweepFolder) -> None:
    """Look at all that `accelsweep.open` offers."""
    sweep = accelsweep.open(folder.root)
    for run in sweep.runs.run.dropna():
        with contextlib.suppress(AccelsweepError):
            sweep.steps(run)
    str(sweep.settings), sweep._repr_html_(), repr(sweep)


READERS: dict[str, Reader] = {
    "status": lambda folder: print_status(folder.home, folder.name),
    "all": lambda folder: print_status(folder.home, None, as_json=True),
    "runs": lambda folder: print_runs(folder.home, folder.name, None),
    "compare": lambda folder: compare_sweeps(folder.home, folder.name, folder.name, None),
    "open": opened,
    "report": lambda folder: report(folder.home, [folder.name]),
    "export": lambda folder: export_sweep(folder.home, folder.name, folder.home / "again.zip"),
    "audit": audit,
    "publish": snapshot.take,
    "plan": lambda folder: make_plan(folder.home, ["accelerator=cpu", "model=mlp"], name=folder.name),
}
LIGHT = ("status", "all", "runs", "audit", "plan", "publish", "compare")
HEAVY = ("open", "report", "export")


@dataclass(frozen=True)
class Bench:
    """What every try starts from: a home with a whole sweep, its report and its archive. It is copied, not changed."""

    home: Path

    @classmethod
    def made(cls, home: Path) -> Bench:
        """Make it below `home`, and read all of it once, so that nothing is imported later."""
        folder = unpacked(PACKED[-1], home)
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
    if any(path.name.startswith("canary") for path in below.rglob("*")):
        raise Forbidden("the canary flew")
    pages = [path.read_text() for path in home.glob("reports/*/*.html")]
    if any("<script>canary" in page for page in pages) or "\x1b[31m" in said.getvalue():
        raise Forbidden("what a file held became a page's script, or a terminal's command")
    return "set aside" if any(home.rglob("*.damaged-*")) else "read"


def _document(find: Callable[[SweepFolder, random.Random], Path]) -> Change:
    def change(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
        path = find(folder, chance)
        way = changed_json if chance.random() < 0.8 else damaged
        path.write_bytes(way(path.read_bytes(), chance))
        return _read_by(folder, chance)

    return change


def _read_by(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    wanted = [*chance.sample(LIGHT, 2), *([chance.choice(HEAVY)] if chance.random() < 0.25 else [])]
    first: list[BaseException] = []

    def read() -> None:
        for name in wanted:
            try:
                READERS[name](folder)
            except (AccelsweepError, OSError) as error:
                first.append(error)
        if first:
            raise first[0]

    return read


def _block(folder: SweepFolder, chance: random.Random) -> Path:
    return folder.block(chance.choice(Manifest.read(folder.manifest).blocks).name)


def _steps(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Change raw steps and let their record vouch for them."""
    for path in folder.root.glob("runs/*/steps.parquet"):
        path.write_bytes(damaged(path.read_bytes(), chance))
        record = path.with_name("record.json")
        Record.read(record).model_copy(update={"steps_sha256": sha256_file(path)}).write(record)
    reader = READERS[chance.choice(HEAVY)]
    return lambda: reader(folder)


def _archive(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Change an archive's bytes, or a file in it, with a listing that fits."""
    path, target = folder.home / "again.zip", folder.home / "hostile.zip"
    if chance.random() < 0.5:
        target.write_bytes(damaged(path.read_bytes(), chance))
    else:
        contents = contents_of(path)
        place = chance.choice(list(contents.files))
        content = members(path)[contents.member(place)]
        json_of_ours = place.endswith(".json") and content.startswith(b'{"accelsweep"')
        changed = changed_json(content, chance) if json_of_ours else damaged(content, chance)
        relisted(path, target, {place: changed})
    there = folder.home / "there"
    there.mkdir()
    if chance.random() < 0.7:
        return lambda: import_archive(there, target, None)
    return lambda: accelsweep.open(target)._repr_html_()


def _config(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    group = chance.choice(("experiment", "experiment", "model"))
    path = folder.home / "conf" / group / "mine.yaml"
    path.write_bytes(changed_yaml(path.read_text(), chance))
    return lambda: make_plan(folder.home, ["experiment=mine", *(["model=mine"] if group == "model" else [])])


KINDS: dict[str, Change] = {
    "plan": _document(lambda folder, _: folder.manifest),
    "record": _document(lambda folder, chance: chance.choice(folder.records_on_top())),
    "block": _document(_block),
    "done": _document(lambda folder, chance: folder.done(_block(folder, chance).stem)),
    "findings": _document(lambda folder, _: folder.findings),
    "steps": _steps,
    "archive": _archive,
    "config": _config,
}

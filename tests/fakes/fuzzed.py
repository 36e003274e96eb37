"""The kinds of files that a try changes, how, and the commands that read them: of a sweep, of others, of a user."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path

from archives import contents_of, members, relisted
from mutations import changed_csv, changed_json, changed_log, changed_svg, changed_yaml, damaged
from published_files import PUBLISHED
from side_effect_guard import Forbidden

import accelsweep
from accelsweep.cli.runs import print_runs
from accelsweep.cli.status import print_status
from accelsweep.cli.sweeps import compare_sweeps
from accelsweep.driver.finalize import report_sweeps
from accelsweep.driver.request import Request
from accelsweep.errors import AccelsweepError
from accelsweep.executor.result_reuse import audit
from accelsweep.features.accounting.sacct import Accounting, JobAccount, accounting_file
from accelsweep.features.archives.command import export_sweep, import_archive
from accelsweep.features.detach.backends import DriverExit, Submission
from accelsweep.features.detach.driver import DriverSpec
from accelsweep.features.imports.readers import external_file, read_all_external, read_published
from accelsweep.files import sha256_file
from accelsweep.planning.plan import make_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.snapshot import take_snapshot

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
    "report": lambda folder: report_sweeps(folder.home, [folder.name]),
    "export": lambda folder: export_sweep(folder.home, folder.name, folder.home / "again.zip"),
    "audit": audit,
    "publish": take_snapshot,
    "plan": lambda folder: make_plan(folder.home, ["accelerator=cpu", "model=mlp"], name=folder.name),
}
LIGHT = ("status", "all", "runs", "audit", "plan", "publish", "compare")
HEAVY = ("open", "report", "export")


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


def _accounting(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Let the records be of a job, and change the cluster's account of it."""
    for path in folder.latest_records():
        record = Record.read(path)
        before = {**record.environment.get("before", {}), "variables": {"SLURM_JOB_ID": "7"}}
        record.model_copy(update={"environment": {**record.environment, "before": before}}).write(path)
    job = JobAccount(number="7", state="COMPLETED", queue_seconds=5.0, elapsed_seconds=60.0, energy_joules=900.0)
    Accounting(jobs={"7": job}).write(accounting_file(folder))
    place = accounting_file(folder)
    place.write_bytes(changed_json(place.read_bytes(), chance))
    reader = READERS[chance.choice(HEAVY)]
    return lambda: reader(folder)


def _driver_lock(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Change the order to a detached driver, or the notes on where it went and how it ended."""
    site = Manifest.read(folder.manifest).site
    request = Request(("batch_size=16",), time_budget="30m", features={"notify": ["json://host/token"]})
    DriverSpec(request=request, site=site, sweeps=(folder.name,), revision=1).write(folder.driver_file("order"))
    Submission(place="tmux", name="accelsweep-old", host="elsewhere", since="2026-01-01T00:00:00+00:00").write(
        folder.driver_file("handed")
    )
    DriverExit(code=1).write(folder.driver_file("ended"))
    path = chance.choice((folder.driver_file("order"), folder.driver_file("handed"), folder.driver_file("ended")))
    way = changed_json if chance.random() < 0.8 else damaged
    path.write_bytes(way(path.read_bytes(), chance))

    def read() -> None:
        READERS["status"](folder)
        order = DriverSpec.read(folder.driver_file("order")).for_next_start(folder)
        str(order.with_remaining_budget(time.monotonic()).request.resume_command())

    return read


def _external(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Change a file that others publish, or the rows that were kept of one."""
    source = chance.choice(list(PUBLISHED))
    name, text = PUBLISHED[source]
    change = changed_csv if name.endswith(".csv") else changed_log
    path = folder.home / name
    path.write_text(text)
    if chance.random() < 0.3:
        kept = external_file(folder.home, "theirs")
        read_published(path, source, "l4").write(kept)
        kept.write_bytes(changed_json(kept.read_bytes(), chance))
        return lambda: [str(row.circumstances) for one in read_all_external(folder.home) for row in one.rows]
    path.write_bytes((change if chance.random() < 0.8 else damaged)(path.read_bytes(), chance))
    target = external_file(folder.home, "theirs")

    def read() -> None:
        read_published(path, source, chance.choice((None, "l4"))).write(target)
        read_all_external(folder.home)

    return read


def _picture(folder: SweepFolder, chance: random.Random) -> Callable[[], object]:
    """Change a picture of the report, in its folder or in an archive. All are drawn anew, so nothing of it may stay."""
    path = chance.choice(sorted(folder.report.glob("*.svg")))
    harmful = changed_svg(path.read_bytes(), chance)
    if chance.random() < 0.5:
        path.write_bytes(harmful)
    else:
        relisted(folder.home / "again.zip", folder.home / "hostile.zip", {f"report/{path.name}": harmful})
        (folder.home / "there").mkdir()

    def read() -> None:
        if (folder.home / "there").exists():
            import_archive(folder.home / "there", folder.home / "hostile.zip", None)
        else:
            READERS[chance.choice(("report", "export"))](folder)
        left = [one for one in folder.home.rglob("*.svg") if one.read_bytes() == harmful]
        if left:
            raise Forbidden(f"{left[0].name} stayed as somebody made it")

    return read


KINDS: dict[str, Change] = {
    "plan": _document(lambda folder, _: folder.manifest),
    "record": _document(lambda folder, chance: chance.choice(folder.latest_records())),
    "block": _document(_block),
    "done": _document(lambda folder, chance: folder.done(_block(folder, chance).stem)),
    "findings": _document(lambda folder, _: folder.findings),
    "steps": _steps,
    "archive": _archive,
    "config": _config,
    "accounting": _accounting,
    "driver": _driver_lock,
    "external": _external,
    "picture": _picture,
}

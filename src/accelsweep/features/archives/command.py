"""`accelsweep export` and `accelsweep import`: a sweep as one file, and back.

Import regenerates findings and report from the records and compares them with those in the archive.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from accelsweep import registry
from accelsweep.cli.options import SweepName
from accelsweep.driver.console import say
from accelsweep.driver.finalize import finalize
from accelsweep.driver.sweep_lock import refuse_if_running
from accelsweep.errors import InputError
from accelsweep.features.archives.check import CheckedArchive, checked, unpacked
from accelsweep.features.archives.pack import pack
from accelsweep.files import sha256_file
from accelsweep.installation import __version__
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder, check_sweep_name, existing_sweep
from accelsweep.significant_digits import count_of

_MAX_NAMED = 5


def export_sweep(home: Path, name: str, to: Path | None) -> Path:
    """Update the report, pack the sweep into `to` (by default `NAME.zip` in `home`), and return the archive's path.

    Raises InputError if the file exists, and AccelsweepError if the sweep is being run.
    """
    folder = existing_sweep(home, name)
    target = to or home / f"{folder.name}.zip"
    if target.exists() or target.is_symlink():
        raise InputError(f"{target} already exists: remove it, or name another file with --to")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder: name a file in an existing folder with --to")
    refuse_if_running(folder)
    report = finalize(folder)
    contents = pack(folder, report, _versions(), target)
    size = f"{target.stat().st_size / 1e6:.1f} MB"
    say(f"{target}: {count_of(len(contents.files), 'file')}, {size}, SHA-256 {sha256_file(target)}")
    return target


def import_archive(home: Path, path: Path, name: str | None) -> SweepFolder:
    """Check an archive, regenerate its findings and report, and move the sweep to `home`; return its folder.

    `name` is a new name for the sweep. Raises InputError, before anything is written, if the archive is unusable or a
    sweep or report of this name exists.
    """
    if not path.exists():
        raise InputError(f"there is no file {path}")
    with checked(path) as archive:
        folder = SweepFolder(home, check_sweep_name(name) if name is not None else archive.contents.name)
        for taken in (folder.root, folder.report):
            if taken.exists() or taken.is_symlink():
                raise InputError(f"{taken} already exists: import the archive under another name with --name")
        with tempfile.TemporaryDirectory(dir=home, prefix=".import.", suffix=".part") as made:
            staged = unpacked(archive, Path(made), archive.contents.name)
            differing = list(_differing(archive, staged, finalize(staged)))
            _move(_renamed(staged, folder.name), folder)
        _print(folder, archive, differing)
    return folder


def _renamed(staged: SweepFolder, name: str) -> SweepFolder:
    """Rename a sweep, and regenerate its findings and report, which contain the name."""
    if name == staged.name:
        return staged
    folder = SweepFolder(staged.home, name)
    shutil.rmtree(staged.report)
    staged.root.rename(folder.root)
    finalize(folder)
    return folder


def _move(staged: SweepFolder, folder: SweepFolder) -> None:
    """Move both a sweep and its report, or neither."""
    moves = ((staged.report, folder.report), (staged.root, folder.root))
    try:
        for source, target in moves:
            target.parent.mkdir(exist_ok=True)
            shutil.move(source, target)  # works across file systems
    except BaseException:
        for _, target in moves:
            shutil.rmtree(target, ignore_errors=True)
        raise


def _differing(archive: CheckedArchive, staged: SweepFolder, report: list[str]) -> Iterator[str]:
    """Yield the archive's files that differ from those that its records produce locally."""
    theirs = Findings.unsealed(archive.read("sweep/findings.json"), archive.path)
    if theirs != Findings.read(staged.findings):
        yield "findings.json"
    held = {place.partition("/")[2] for place in archive.contents.files if place.startswith("report/")}
    for name in sorted(held | set(report)):
        both = name in held and name in report
        if not both or archive.read(f"report/{name}") != (staged.report / name).read_bytes():
            yield name


def _print(folder: SweepFolder, archive: CheckedArchive, differing: list[str]) -> None:
    say(f"{folder.root}: {count_of(len(folder.latest_records()), 'record')}")
    if not differing:
        say("findings and report, regenerated from the records, are identical to the archive's, byte for byte")
    else:
        named = ", ".join(differing[:_MAX_NAMED]) + (", ..." if len(differing) > _MAX_NAMED else "")
        say(f"warning: regenerated from records, {count_of(len(differing), 'file')} differ from the archive's: {named}")
        say(f"warning: {_difference_reason(archive)}")
    say(f"report: {folder.page}")


def _difference_reason(archive: CheckedArchive) -> str:
    here, there = _versions(), archive.contents.versions
    apart = [f"{name} {there.get(name)} there, {here.get(name)} here" for name in here if here[name] != there.get(name)]
    if apart:
        return f"a possible reason: {'; '.join(apart)}"
    return "the versions are the same, so the archived files were edited; the files here are derived from the records"


def _versions() -> dict[str, str]:
    from accelsweep.features.archives.pack import drawn_with

    return {"accelsweep": __version__, **drawn_with()}


def export(
    name: SweepName,
    to: Annotated[Path | None, typer.Option(help="the file to write (default: NAME.zip)", show_default=False)] = None,
) -> None:
    """`accelsweep export NAME`."""
    export_sweep(Path.cwd(), name, to)


def import_(
    file: Annotated[Path, typer.Argument(help="an archive written by `export` or, with --from, a published file")],
    name: Annotated[str | None, typer.Option("--name", help="a new name for the sweep (default: as exported)")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="who published it: timm, lambda, mlperf, milabench")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="with --from: the device, if the file does not name one")
    ] = None,
) -> None:
    """`accelsweep import FILE`."""
    if source is not None:
        for import_rows in registry.loaded("import_rows"):
            import_rows(Path.cwd(), file, source, device, name)
        return
    if device is not None:
        raise InputError("--device applies to published results only: specify who published them with --from")
    import_archive(Path.cwd(), file, name)

"""`accelsweep history`: show the rate of each setting over commits or dates, from several sweeps or archives."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from pydantic import Field

from accelsweep.cli.options import SWEEP_NAMES, AsJson
from accelsweep.driver.console import Listing, Styled, say, show, tone_of
from accelsweep.driver.json_output import Answer
from accelsweep.errors import InputError, nearest
from accelsweep.features.archives.check import checked
from accelsweep.features.history.model import History
from accelsweep.git import GitFailed, git
from accelsweep.records.layout import SWEEPS_FOLDER, SweepFolder, known_sweeps
from accelsweep.records.plan import Manifest
from accelsweep.report.formatting import bare_text, ratio_text, unit_word
from accelsweep.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from accelsweep.analysis.merge_sweeps import Part


HistorySources = Annotated[
    list[str], typer.Argument(help="sweeps, archives, or a folder of archives", autocompletion=SWEEP_NAMES)
]


class HistoryAnswer(History, Answer):
    """`accelsweep history NAME... --json`: the rate of each setting over commits or dates."""

    kind: ClassVar[str] = "history"

    report: str = Field(description="the path of the page")


_ARCHIVE_SUFFIX = ".zip"


def commit_dates(home: Path, commits: Iterable[str]) -> dict[str, str]:
    """Return the committer date (UTC, ISO 8601) of each locally known commit; empty without git or a repository."""
    dates = {}
    for commit in sorted(set(commits)):
        try:
            seconds = git(home, "show", "--no-patch", "--format=%ct", "--end-of-options", f"{commit}^{{commit}}")
        except GitFailed:
            continue
        except (InputError, OSError):
            return {}
        dates[commit] = datetime.fromtimestamp(int(seconds), UTC).isoformat(timespec="seconds")
    return dates


def read_parts(home: Path, names: Sequence[str]) -> list[Part]:
    """Return the sweeps with these names, without duplicates; a name is a sweep, an archive, or a folder of archives.

    Archives are checked, not imported. Raises InputError if a name is unknown or an archive is unusable.
    """
    known = known_sweeps(home)
    sources = dict.fromkeys(source for name in names for source in _sources(home, name, known))
    return [
        _part(source, SweepFolder(home, source)) if isinstance(source, str) else _archived_part(source)
        for source in sources
    ]


def _sources(home: Path, name: str, known: Sequence[str]) -> list[Path | str]:
    if name in known:
        return [name]
    path = home / Path(name).expanduser()
    if path.is_dir():
        archives: list[Path | str] = sorted(path.glob(f"*{_ARCHIVE_SUFFIX}"))
        if not archives:
            raise InputError(
                f"{path} contains no archive (*{_ARCHIVE_SUFFIX}): create one with `accelsweep export NAME --to FILE`"
            )
        return archives
    if path.is_file():
        return [path]
    there = f"there are: {', '.join(known)}" if known else f"there are none under {home / SWEEPS_FOLDER}"
    raise InputError(f"no sweep, archive or folder {name!r}{nearest(name, known)}; {there}")


def _archived_part(path: Path) -> Part:
    """Return an archive's sweep, named after the archive file."""
    with temporary_folder("opened") as temporary, checked(path) as archive:
        documents = [file for file in archive.contents.files if file.startswith("sweep/") and file.endswith(".json")]
        folder = SweepFolder(temporary, archive.contents.name)
        archive.unpack(documents, folder.root)
        return _part(path.name.removesuffix(_ARCHIVE_SUFFIX), folder)


def _part(name: str, folder: SweepFolder) -> Part:
    from accelsweep.analysis.collect import read_runs
    from accelsweep.analysis.merge_sweeps import Part

    manifest = Manifest.read(folder.manifest)
    return Part(name, read_runs(folder, manifest), manifest)


def show_history(home: Path, names: Sequence[str], *, as_json: bool = False) -> None:
    """Write the history page of these sweeps and print a summary. Raises InputError before anything is written."""
    from accelsweep.features.history.lines import commits_in, history_of
    from accelsweep.features.history.page import history_folder, write_history

    parts = read_parts(home, names)
    history = history_of(parts, commit_dates(home, commits_in(parts)))
    command = shlex.join(["accelsweep", "history", *names])
    page = write_history(history, history_folder(home, history.sources), command)
    if as_json:
        say(HistoryAnswer(**dict(history), report=str(page)).text())
    else:
        _print(history, page)


def _print(history: History, page: Path) -> None:
    from accelsweep.features.history.figure import describe_change
    from accelsweep.features.history.page import detail, headline, line_titles, notes

    titles = line_titles(history)
    units = ", ".join(dict.fromkeys(unit_word(line.rate_unit) for line in history.lines))
    headings = ("setting", "points", f"first, {units}", f"last, {units}", "last change")
    rows = []
    for title, line in zip(titles, history.lines, strict=True):
        last = line.changes[-1] if line.changes else None
        last_change = Styled(f"{last.verdict} at {line.points[last.at].name}", tone_of(last.verdict)) if last else "-"
        rates = (bare_text(line.points[0].rate), bare_text(line.points[-1].rate))
        rows.append((title, str(len(line.points)), *rates, last_change))
    show(Listing(f"history of {len(history.sources)} sweeps", headings, tuple(rows), numbers=headings[1:4]))
    for title, line in zip(titles, history.lines, strict=True):
        for change in line.changes:
            say(f"{title}: {describe_change(line, change)}, {ratio_text(change.ratio)}")
    for note in notes(history, titles):
        say(note)
    say(f"{headline(history, titles)}. {detail(history)}")
    say(f"report: {page}")


def history(names: HistorySources, as_json: AsJson = False) -> None:
    """`accelsweep history NAME...`."""
    show_history(Path.cwd(), names, as_json=as_json)

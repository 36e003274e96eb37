"""The answer of `accelsweep history`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from accelsweep.cli.options import AsJson, HistorySources
from accelsweep.driver.console import Listing, Marked, say, show, tone_of
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.errors import InputError, nearest
from accelsweep.features.archives.check import checked
from accelsweep.git import GitFailed, git
from accelsweep.records.cleanup import temporary_folder
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.layout import SWEEPS_FOLDER, SweepFolder, known_sweeps
from accelsweep.records.plan import Manifest
from accelsweep.report.units import bare_text, ratio_text, unit_word

if TYPE_CHECKING:
    from accelsweep.analysis.merge_sweeps import Part
    from accelsweep.features.history.lines import History, HistoryLine


class PointOfLine(AnswerPart):
    """A setting's rate in one sweep, at one commit."""

    name: str = Field(description="the commit in short, or the minute of the measurement")
    source: str = Field(description="the sweep, or the archive that holds it")
    version: str | None = Field(description="the name of the version, as it was typed for `ab`")
    commit: str | None = Field(description="the commit's hash, where one was recorded")
    local_changes: bool | None = Field(description="whether files differed from the commit")
    committed: str | None = Field(description="the date of the commit, where this repository has it")
    measured: str = Field(description="when its first run began")
    rate: Estimate = Field(description="the rate")
    disturbed: str | None = Field(description="why the point counts for no level")
    software: dict[str, str] = Field(description="the versions of the packages that decide rates")


class ChangeOfLine(AnswerPart):
    """A supported change of a line's level."""

    at: int = Field(description="the number, from 0, of the first point after the change")
    ratio: Estimate = Field(description="the level after the change divided by the one before")
    verdict: Verdict = Field(description="`faster` or `slower`")
    software: tuple[str, ...] = Field(description="packages that changed at the same place")


class LineOfHistory(AnswerPart):
    """One setting on one machine."""

    cell: str = Field(description="the setting's name in files, its version apart")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    hardware: str = Field(description="the kind of machine")
    machine: str | None = Field(description="the identity of the machine, where records have one")
    rate_unit: str = Field(description="the unit of the rates")
    points: tuple[PointOfLine, ...] = Field(description="the points in order")
    changes: tuple[ChangeOfLine, ...] = Field(description="where the level changed")
    reason: str = Field(description="why no change was looked for; empty where it was")


class HistoryAnswer(Answer):
    """`accelsweep history NAME... --json`: the rate of each setting over commits or dates."""

    kind: ClassVar[str] = "history"

    sources: tuple[str, ...] = Field(description="the sweeps or archives")
    order: str = Field(description="what points are ordered by: `commit date` or `date of measurement`")
    order_reason: str = Field(description="why that is the order")
    confidence: float = Field(description="the confidence with which the intervals of all changes hold")
    family: int = Field(description="the number of places at which a change could stand")
    lines: tuple[LineOfHistory, ...] = Field(description="a line for each setting on each machine")
    alone: tuple[str, ...] = Field(description="settings with one point only")
    report: str = Field(description="the path of the page")


# The dates of commits, as far as the repository around the working directory knows them.


def commit_dates(home: Path, commits: Iterable[str]) -> dict[str, str]:
    """Return the committer's date, UTC in ISO 8601, of each commit that is known. Without git or a repository: none."""
    found = {}
    for commit in sorted(set(commits)):
        try:
            told = git(home, "show", "--no-patch", "--format=%ct", "--end-of-options", f"{commit}^{{commit}}")
        except GitFailed:
            continue
        except (InputError, OSError):
            return {}
        found[commit] = datetime.fromtimestamp(int(told), UTC).isoformat(timespec="seconds")
    return found


# The sources of `history`: sweeps of this working directory, or archives, which are checked and not imported.

_ENDING = ".zip"


def parts_named(home: Path, words: Sequence[str]) -> list[Part]:
    """Return the sweeps that these words name, each once: names of sweeps, archives, or folders of archives.

    Raises InputError for other words and for an archive that cannot be used; nothing is written.
    """
    known = known_sweeps(home)
    places = [place for word in words for place in _places(home, word, known)]
    return [
        _of_archive(place) if isinstance(place, Path) else _of_sweep(home, place) for place in dict.fromkeys(places)
    ]


def _places(home: Path, word: str, known: Sequence[str]) -> list[Path | str]:
    if word in known:
        return [word]
    path = home / Path(word).expanduser()
    if path.is_dir():
        archives: list[Path | str] = sorted(path.glob(f"*{_ENDING}"))
        if not archives:
            raise InputError(f"{path} holds no archive (*{_ENDING}): make them with `accelsweep export NAME --to FILE`")
        return archives
    if path.is_file():
        return [path]
    there = f"there are: {', '.join(known)}" if known else f"there are none under {home / SWEEPS_FOLDER}"
    raise InputError(f"no sweep, archive or folder {word!r}{nearest(word, known)}; {there}")


def _of_sweep(home: Path, name: str) -> Part:
    return _part(name, SweepFolder(home, name))


def _of_archive(path: Path) -> Part:
    """Return the sweep of an archive by the name of its file. Files outside of this folder stay as they are."""
    with temporary_folder("archive") as folder, checked(path) as archive:
        needed = [place for place in archive.contents.files if place.startswith("sweep/") and place.endswith(".json")]
        place = SweepFolder(folder, archive.contents.name)
        archive.unpack(needed, place.root)
        return _part(path.name.removesuffix(_ENDING), place)


def _part(name: str, folder: SweepFolder) -> Part:
    from accelsweep.analysis.collect import look_up
    from accelsweep.analysis.merge_sweeps import Part

    manifest = Manifest.read(folder.manifest)
    return Part(name, look_up(folder, manifest), manifest)


# `accelsweep history`: the rate of each setting over commits or dates, from several sweeps or their archives.


def show_history(home: Path, words: Sequence[str], *, as_json: bool = False) -> None:
    """Write the page of these sweeps' history, and print it in short. Raises InputError before anything is written."""
    from accelsweep.features.history.lines import commits_in, history_of
    from accelsweep.features.history.page import history_folder, write_history

    parts = parts_named(home, words)
    history = history_of(parts, commit_dates(home, commits_in(parts)))
    command = shlex.join(["accelsweep", "history", *words])
    page = write_history(history, history_folder(home, history.sources), command)
    if as_json:
        say(_answer(history, page))
    else:
        _print(history, page)


def _answer(history: History, page: Path) -> str:

    return HistoryAnswer.made_of(history, report=str(page)).text()


def _print(history: History, page: Path) -> None:
    from accelsweep.features.history.figure import change_words
    from accelsweep.features.history.page import line_titles, notes, order_words

    titles = line_titles(history)
    units = ", ".join(dict.fromkeys(unit_word(line.rate_unit) for line in history.lines))
    headings = ("setting", "points", f"first, {units}", f"last, {units}", "last change")
    rows = tuple(_row(title, line) for title, line in zip(titles, history.lines, strict=True))
    show(Listing(f"history of {len(history.sources)} sweeps", headings, rows, numbers=headings[1:4]))
    for title, line in zip(titles, history.lines, strict=True):
        for change in line.changes:
            say(f"{title}: {change_words(line, change)}, {ratio_text(change.ratio)}")
    for note in notes(history, titles):
        say(note)
    say(order_words(history))
    say(f"report: {page}")


def _row(title: str, line: HistoryLine) -> tuple[str | Marked, ...]:
    last = line.changes[-1] if line.changes else None
    told = Marked(f"{last.verdict} at {line.points[last.at].name}", tone_of(last.verdict)) if last else "-"
    return title, str(len(line.points)), bare_text(line.points[0].rate), bare_text(line.points[-1].rate), told


def history(names: HistorySources, as_json: AsJson = False) -> None:
    """`accelsweep history NAME...`."""
    show_history(Path.cwd(), names, as_json=as_json)

"""`accelsweep history`: the rate of each setting over commits or dates, from several sweeps or their archives."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.driver.console import Listing, Marked, say, show, tone_of
from accelsweep.report.units import bare_text, ratio_text, unit_word

if TYPE_CHECKING:
    from accelsweep.core.derived.histories import History, HistoryLine


def show_history(home: Path, words: Sequence[str], *, as_json: bool = False) -> None:
    """Write the page of these sweeps' history, and print it in short. Raises InputError before anything is written."""
    from accelsweep.analyse.history.lines import history_of
    from accelsweep.analyse.history.points import commits_in
    from accelsweep.answers.dates import commit_dates
    from accelsweep.answers.sources import parts_named
    from accelsweep.report.history.write import history_folder, write_history

    parts = parts_named(home, words)
    history = history_of(parts, commit_dates(home, commits_in(parts)))
    command = shlex.join(["accelsweep", "history", *words])
    page = write_history(history, history_folder(home, history.sources), command)
    if as_json:
        say(_answer(history, page))
    else:
        _print(history, page)


def _answer(history: History, page: Path) -> str:
    from accelsweep.answers.forms.history import HistoryAnswer

    return HistoryAnswer.made_of(history, report=str(page)).text()


def _print(history: History, page: Path) -> None:
    from accelsweep.report.history.content import line_titles, notes, order_words
    from accelsweep.report.history.figure import change_words

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

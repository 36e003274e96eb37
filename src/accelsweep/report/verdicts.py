"""One table over the claims of many sweeps: `reports/claims/`, as a page and as Markdown. It formats findings only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.sweep_options import CONFIDENCE
from accelsweep.core.claims.claims import GROUP
from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MARKDOWN, PAGE, REPORTS_FOLDER
from accelsweep.report import units as fmt
from accelsweep.report.claims_tables import claims_table, published_table, reasons_table
from accelsweep.report.html_page import render_static
from accelsweep.report.markdown import escape, table_text
from accelsweep.report.report_files import replace_files
from accelsweep.report.table_model import ReportTable, to_csv
from accelsweep.report.units import printable_findings

UNTESTED = (ClaimVerdict.not_testable, ClaimVerdict.not_run)
_IN_WORDS = {ClaimVerdict.measured: "without a claimed figure"}


@dataclass(frozen=True)
class Verdicts:
    """The content of the page: the sweeps that state claims, and why some, by name, were not run to their end."""

    sweeps: tuple[Findings, ...]
    why_not: Mapping[str, str]

    @property
    def claims(self) -> tuple[ClaimFinding, ...]:
        """The figures of all claims."""
        return tuple(claim for findings in self.sweeps for claim in findings.claims)

    @property
    def sentence(self) -> str:
        """The number of claims and the verdicts on their figures; analogues and projections are counted apart."""
        own = [claim for claim in self.claims if not claim.analogue]
        projected = [claim for claim in own if claim.projected]
        counts = Counter(claim.verdict for claim in own if not claim.projected)
        tested = [verdict for verdict in ClaimVerdict if counts[verdict] and verdict not in UNTESTED]
        untested = [f"{counts[verdict]} {verdict.value}" for verdict in UNTESTED if counts[verdict]]
        words = ", ".join(f"{counts[verdict]} {_IN_WORDS.get(verdict, verdict.value)}" for verdict in tested)
        here = f"{sum(counts[verdict] for verdict in tested)} tested here" + (f" ({words})" if words else "")
        return (
            f"{fmt.count(len({claim.id for claim in own}), 'claim')} with {fmt.count(len(own), 'figure')}: "
            f"{', '.join([here, *untested, *_judged_by_projection(len(projected))])}. "
            f"Beside them {fmt.count(len(self.claims) - len(own), 'figure')} of smaller analogues."
        )

    @property
    def waiting(self) -> tuple[str, ...]:
        """The reasons why some were not run, and the command that runs each."""
        left = [one for one in self.sweeps if any(claim.verdict is ClaimVerdict.not_run for claim in one.claims)]
        told = [f"{one.claims[0].id} was not run: {self.why_not[one.sweep]}; {one.command}" for one in left]
        unknown = sorted(self.why_not.keys() - {one.sweep for one in self.sweeps})
        return (*told, *(f"nothing is known of {sweep}: {self.why_not[sweep]}" for sweep in unknown))

    @property
    def machines(self) -> str:
        """The kinds of hardware with measurements."""
        names = dict.fromkeys(hardware.name for one in self.sweeps for hardware in one.hardware)
        return " and ".join(names) or "nothing was measured"

    @property
    def tables(self) -> tuple[ReportTable, ...]:
        """The verdicts, and others' published values where a claim states them."""
        confidence = min((one.confidence for one in self.sweeps), default=CONFIDENCE)
        published = [claim for claim in self.claims if claim.published]
        tables = (claims_table(self.claims, confidence), reasons_table(self.claims))
        return (*tables, published_table(published)) if published else tables


def _judged_by_projection(count: int) -> list[str]:
    """Return how many figures were judged by projection, which is no test; nothing for none."""
    return [f"{count} only projected"] if count else []


def write_verdicts(home: Path, sweeps: Sequence[Findings], why_not: Mapping[str, str]) -> Path:
    """Write `reports/claims/` below `home` and return the path of its page. The same findings give the same bytes."""
    content = Verdicts(tuple(printable_findings(one) for one in sweeps), why_not)
    files = {f"{table.name}.csv": to_csv(table.data) for table in content.tables}
    files[MARKDOWN] = _markdown(content)
    files[PAGE] = render_static("claims.html.j2", content=content)
    target = home / REPORTS_FOLDER / GROUP
    replace_files(files, target)
    return target / PAGE


def _markdown(content: Verdicts) -> str:
    parts = ["# Claims put to the test", f"**{escape(content.sentence)}**", f"Measured on: {escape(content.machines)}."]
    parts += ["\n".join(f"- {escape(line)}" for line in content.waiting)] if content.waiting else []
    for table in content.tables:
        parts += [f"## {table.title}", table_text(table)]
    links = [f"- [{escape(one.claims[0].id)}](../{one.sweep}/{MARKDOWN})" for one in content.sweeps if one.claims]
    return "\n\n".join([*parts, "## The sweep of each claim", "\n".join(links)]) + "\n"

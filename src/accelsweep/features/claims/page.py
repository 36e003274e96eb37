"""The page that covers the claims of many sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.sweep_options import CONFIDENCE
from accelsweep.features.claims.model import GROUP, ClaimFinding, ClaimVerdict, figures_of
from accelsweep.features.claims.report import UNTESTED, tables_of_claims
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MARKDOWN, PAGE, REPORTS_FOLDER
from accelsweep.report import formatting as fmt
from accelsweep.report.formatting import printable_findings
from accelsweep.report.html_page import render_static
from accelsweep.report.markdown import escape, table_text
from accelsweep.report.report_files import replace_files
from accelsweep.report.table_model import ReportTable, to_csv

_OTHERS = (ClaimVerdict.more, ClaimVerdict.less, ClaimVerdict.undecided, ClaimVerdict.disturbed)


@dataclass(frozen=True)
class Verdicts:
    """The content of the page that covers many sweeps; `why_not` maps incomplete sweeps to the reasons."""

    sweeps: tuple[Findings, ...]
    why_not: Mapping[str, str]

    @property
    def claims(self) -> tuple[ClaimFinding, ...]:
        """The figures of all claims."""
        return tuple(claim for findings in self.sweeps for claim in figures_of(findings))

    @property
    def headline(self) -> str:
        """How many of the figures that could be tested agree with the claims, excluding analogues and projections."""
        counts = self._counts
        tested = sum(number for verdict, number in counts.items() if verdict not in (*UNTESTED, ClaimVerdict.measured))
        if not tested:
            return "No claim could be tested here"
        agree = "figure agrees" if tested == 1 else "figures agree"
        others = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _OTHERS if counts[verdict])
        return f"{counts[ClaimVerdict.agrees]} of {tested} claimed {agree}{f'; {others}' if others else ''}"

    @property
    def detail(self) -> str:
        """How many claims there are, and what was not tested."""
        own = [claim for claim in self.claims if not claim.analogue]
        counts, projected = self._counts, sum(claim.projected is not None for claim in own)
        parts = [f"{counts[verdict]} {verdict.value}" for verdict in UNTESTED if counts[verdict]]
        parts += [f"{counts[ClaimVerdict.measured]} without a claimed figure"] if counts[ClaimVerdict.measured] else []
        parts += [f"{projected} only projected"] if projected else []
        return (
            f"{fmt.count(len({claim.id for claim in own}), 'claim')} with {fmt.count(len(own), 'figure')}"
            f"{''.join(f', {part}' for part in parts)}. "
            f"In addition, {fmt.count(len(self.claims) - len(own), 'figure')} of smaller analogues."
        )

    @property
    def _counts(self) -> Counter[ClaimVerdict]:
        return Counter(claim.verdict for claim in self.claims if not claim.analogue and claim.projected is None)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The reasons why some sweeps were not run, and the commands to run them."""
        pending = [
            one for one in self.sweeps if any(claim.verdict is ClaimVerdict.not_run for claim in figures_of(one))
        ]
        lines = [f"{figures_of(one)[0].id} was not run: {self.why_not[one.sweep]}; {one.command}" for one in pending]
        unknown = sorted(self.why_not.keys() - {one.sweep for one in self.sweeps})
        return (*lines, *(f"{sweep} has no findings: {self.why_not[sweep]}" for sweep in unknown))

    @property
    def machines(self) -> str:
        """The kinds of hardware on which claims were measured."""
        names = dict.fromkeys(hardware.name for one in self.sweeps for hardware in one.hardware)
        return " and ".join(names) or "nothing was measured"

    @property
    def tables(self) -> tuple[ReportTable, ...]:
        """The verdicts, the reasons, and published values if any claim lists them."""
        confidence = min((one.confidence for one in self.sweeps), default=CONFIDENCE)
        return tuple(tables_of_claims(self.claims, confidence))


def write_verdicts(home: Path, sweeps: Sequence[Findings], why_not: Mapping[str, str]) -> Path:
    """Write `reports/claims/` in `home` and return its page. The same findings produce the same bytes."""
    content = Verdicts(tuple(printable_findings(one) for one in sweeps), why_not)
    files = {f"{table.name}.csv": to_csv(table.data) for table in content.tables}
    files[MARKDOWN] = _markdown(content)
    files[PAGE] = render_static(Path(__file__).with_name("claims.html.j2"), content=content)
    target = home / REPORTS_FOLDER / GROUP
    replace_files(files, target)
    return target / PAGE


def _markdown(content: Verdicts) -> str:
    parts = ["# Claims put to the test", f"**{escape(content.headline)}**", escape(content.detail)]
    parts += [f"Measured on: {escape(content.machines)}."]
    parts += ["\n".join(f"- {escape(line)}" for line in content.waiting)] if content.waiting else []
    for table in content.tables:
        parts += [f"## {table.title}", table_text(table)]
    links = [
        f"- [{escape(figures_of(one)[0].id)}](../{one.sweep}/{MARKDOWN})" for one in content.sweeps if figures_of(one)
    ]
    return "\n\n".join([*parts, "## The sweep of each claim", "\n".join(links)]) + "\n"

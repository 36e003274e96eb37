"""`--format github`: an annotation for each setting, escaped, and a Markdown summary."""

from __future__ import annotations

import pytest

from accelsweep.config.versions import Version
from accelsweep.errors import InputError
from accelsweep.features.ab.command import (
    SUMMARY_VARIABLE,
    AbAnswer,
    VersionedSetting,
    annotate,
    annotation,
    check_format,
    summary,
)
from accelsweep.records.estimates import Estimate, Verdict

RATIO = Estimate(value=0.97, low=0.96, high=0.98, unit="1", confidence=0.95, count=8)


def row(gate: str | None, label: str = "batch 64 | version=HEAD", ratio: Estimate | None = RATIO) -> VersionedSetting:
    return VersionedSetting(
        setting="c",
        against="b",
        label=label,
        axes={},
        rate=None,
        ratio=ratio,
        verdict=Verdict.slower,
        reason="why",
        blocks=8,
        gate=gate,
        doubts=(),
    )


def answer(*rows: VersionedSetting) -> AbAnswer:
    versions = tuple(Version(name=name, kind="commit", digest="0") for name in ("main", "HEAD"))
    return AbAnswer(
        sweep="ab-mine",
        headline="HEAD is 3 % slower | here",
        versions=versions,
        family=1,
        confidence=0.95,
        threshold=0.02,
        rate_unit="1/s",
        rows=rows,
        fail_if="slower:2%",
        gate="regression",
        failing=(),
    )


@pytest.mark.parametrize(
    ("gate", "level"),
    [
        ("regression", "error"),
        ("not measured", "warning"),
        ("none found", "notice"),
        ("shown absent", "notice"),
        (None, "notice"),
    ],
)
def test_the_gate_state_sets_the_annotation_level(gate: str | None, level: str) -> None:
    assert annotation(row(gate), "slower:2%").startswith(
        f"::{level} title=accelsweep slower::batch 64 | version=HEAD: 0.97x"
    )


def test_a_label_cannot_end_the_line_or_inject_a_command() -> None:
    text = annotation(row("regression", "a\n::set-output name=x::100%"), "slower:2%")
    assert "\n" not in text
    assert "a%0A::set-output name=x::100%25: 0.97x" in text


def test_the_summary_has_a_row_for_each_setting_and_the_gate() -> None:
    text = summary(answer(row("regression"), row("not measured", ratio=None)))
    assert text.splitlines()[0].startswith("### HEAD is 3 % slower ")
    assert text.count("| slower |") == 2
    assert "`slower:2%`: regression. Sweep ab-mine, 8 blocks." in text


def test_the_summary_is_appended_to_the_runners_file(tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv(SUMMARY_VARIABLE, str(path))
    annotate(answer(row("regression")))
    assert path.read_text().startswith("before\n### HEAD")
    assert capsys.readouterr().out.startswith("::error ")


def test_an_unknown_format_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'github'"):
        check_format("gihtub")

"""The answer of `accelsweep doctor`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from accelsweep.answers.forms.answer import Answer, AnswerPart


class CheckResult(AnswerPart):
    """One check."""

    ok: bool | None = Field(description="whether it holds; null for what keeps nobody from measuring")
    what: str = Field(description="what was looked at")
    found: str = Field(description="what was found")
    remedy: str | None = Field(None, description="what to do, where something should be done")


class DoctorAnswer(Answer):
    """`accelsweep doctor --json`: whether this machine can measure."""

    kind: ClassVar[str] = "doctor"

    able: bool = Field(description="whether every check holds; if not, the exit code is 1")
    checks: tuple[CheckResult, ...] = Field(description="the checks")

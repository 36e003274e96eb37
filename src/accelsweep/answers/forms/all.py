"""All answers, for the reference."""

from __future__ import annotations

from accelsweep.answers.forms.advised import AdviseAnswer
from accelsweep.answers.forms.answer import Answer
from accelsweep.answers.forms.checked import DoctorAnswer
from accelsweep.answers.forms.compared import CompareAnswer
from accelsweep.answers.forms.fleet import FleetAnswer
from accelsweep.answers.forms.history import HistoryAnswer
from accelsweep.answers.forms.listed import RunsAnswer
from accelsweep.answers.forms.planned import PlanAnswer
from accelsweep.answers.forms.profiled import ProfileAnswer
from accelsweep.answers.forms.projected import ProjectAnswer
from accelsweep.answers.forms.state import StatusAnswer
from accelsweep.answers.forms.versions import AbAnswer

ANSWERS: tuple[type[Answer], ...] = (
    AbAnswer,
    FleetAnswer,
    PlanAnswer,
    StatusAnswer,
    RunsAnswer,
    CompareAnswer,
    HistoryAnswer,
    ProjectAnswer,
    AdviseAnswer,
    ProfileAnswer,
    DoctorAnswer,
)
"""In the order of the commands."""

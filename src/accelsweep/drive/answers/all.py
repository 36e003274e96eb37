"""All answers, for the reference."""

from __future__ import annotations

from accelsweep.drive.answers.advised import AdviseAnswer
from accelsweep.drive.answers.answer import Answer
from accelsweep.drive.answers.checked import DoctorAnswer
from accelsweep.drive.answers.compared import CompareAnswer
from accelsweep.drive.answers.fleet import FleetAnswer
from accelsweep.drive.answers.history import HistoryAnswer
from accelsweep.drive.answers.listed import RunsAnswer
from accelsweep.drive.answers.planned import PlanAnswer
from accelsweep.drive.answers.profiled import ProfileAnswer
from accelsweep.drive.answers.projected import ProjectAnswer
from accelsweep.drive.answers.state import StatusAnswer
from accelsweep.drive.answers.versions import AbAnswer

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

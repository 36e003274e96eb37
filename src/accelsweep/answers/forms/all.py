"""All answers, for the reference."""

from __future__ import annotations

from accelsweep.answers.forms.advised import AdviseAnswer
from accelsweep.answers.forms.compared import CompareAnswer
from accelsweep.answers.forms.fleet import FleetAnswer
from accelsweep.answers.forms.history import HistoryAnswer
from accelsweep.answers.forms.planned import PlanAnswer
from accelsweep.answers.forms.profiled import ProfileAnswer
from accelsweep.answers.forms.projected import ProjectAnswer
from accelsweep.answers.forms.versions import AbAnswer
from accelsweep.cli.doctor import DoctorAnswer
from accelsweep.cli.json_output import Answer
from accelsweep.cli.runs import RunsAnswer
from accelsweep.cli.status import StatusAnswer

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

"""The cluster's own account of a sweep's jobs: how long each waited and ran, and what its nodes took.

It is about whole jobs and is known only after they ended. So it stands in a file of its own, and never in a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from accelsweep.json_documents import Document, Frozen
from accelsweep.records.run_environment import Surroundings

PROVENANCE = "slurm"
"""The source that metrics from a job's account state."""


def job_of(environment: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the number of the Slurm job that a record's `environment` was in; None outside a job."""
    number = Surroundings(environment).before.variables.get("SLURM_JOB_ID")
    return str(number) if number is not None else None


class JobAccount(Frozen):
    """One job, or the `reason` why nothing is known of it.

    `state` is Slurm's word for its end. `submitted_at` is its first submission, `ended_at` its last end, both UTC in
    ISO 8601. A job that was queued again has several `starts`: `queue_seconds` and `elapsed_seconds` are sums over
    them. `energy_joules` is of all its nodes and all its time, None with an `energy_reason`.
    """

    number: str
    reason: str | None = None
    state: str | None = None
    partition: str | None = None
    nodes: str | None = None
    submitted_at: str | None = None
    ended_at: str | None = None
    starts: int = 0
    queue_seconds: float | None = None
    elapsed_seconds: float | None = None
    energy_joules: float | None = None
    energy_reason: str | None = None

    @model_validator(mode="after")
    def _values_or_reason(self) -> JobAccount:
        if (self.queue_seconds is None) == (self.reason is None):
            raise ValueError("a job has either an account or the reason why it has none")
        return self

    @property
    def settled(self) -> bool:
        """Whether the job has ended and is known, so that nobody need be asked again."""
        return self.reason is None


class Accounting(Document):
    """The accounts of the jobs in which a sweep's runs were measured, by the jobs' numbers."""

    kind: ClassVar[str] = "accounting"

    jobs: dict[str, JobAccount]

"""The task, which runs in the processes that measure."""

from accelsweep.metrics import Metric
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.tasks.inference import Inference


class ColdStart(Inference):
    """Answers queries as `task=inference` does, and compares the first answer with the others."""

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the ratio to the run's metrics, now that the timed window has closed."""
        super().window_closed(measured, report)
        first, usual = report.metrics["first_step_seconds"].value, report.metrics["step_seconds"].value
        known = first is not None and usual
        report.metrics["cold_start_ratio"] = Metric(
            value=first / usual if known else None, unit="ratio", reason=None if known else "an answer was not timed"
        )

"""All figures of a report, in the order in which a reader meets them."""

from __future__ import annotations

from accelsweep.core.findings.findings import Findings
from accelsweep.report.figures.breakdown import breakdown_figure
from accelsweep.report.figures.drift import drift_figure
from accelsweep.report.figures.elsewhere import elsewhere_figure
from accelsweep.report.figures.ladder import ladder_figure
from accelsweep.report.figures.memory import memory_figure
from accelsweep.report.figures.others import others_figure
from accelsweep.report.figures.parts.figure import Figure, Skipped
from accelsweep.report.figures.quality import quality_figure
from accelsweep.report.figures.rate import heatmap_figure, throughput_figure
from accelsweep.report.figures.scaling import efficiency_figure, scaling_figure
from accelsweep.report.figures.speedup import speedup_figure
from accelsweep.report.figures.steps import steps_figure
from accelsweep.report.figures.tradeoff import tradeoff_figures
from accelsweep.report.place import RunsPlace


def build_figures(findings: Findings, folder: RunsPlace) -> list[Figure | Skipped]:
    """Return every figure of `captions.CAPTIONS`, drawn or skipped with a reason, in reading order."""
    return [
        speedup_figure(findings),
        ladder_figure(findings),
        heatmap_figure(findings),
        throughput_figure(findings),
        scaling_figure(findings),
        efficiency_figure(findings),
        memory_figure(findings),
        drift_figure(findings),
        steps_figure(findings, folder),
        breakdown_figure(findings),
        quality_figure(findings),
        *tradeoff_figures(findings),
        others_figure(findings),
        elsewhere_figure(findings),
    ]

"""Title and explanation of each figure, for the page and the Markdown report."""

from __future__ import annotations

from dataclasses import dataclass

from accelsweep import registry

_FRONT = (
    "Marks are those of the speed-ups. A pale mark is off the Pareto front: the intervals show another setting to be "
    "as good in every respect and better in one. If there are too few runs to tell, it stays on the front. A ring "
    "marks the recommended setting."
)


@dataclass(frozen=True)
class Caption:
    """A figure's title and the explanatory paragraph below it, as plain text without markup."""

    title: str
    text: str


_CORE: dict[str, Caption] = {
    "speedup": Caption(
        "Speed-up against the baseline",
        "Each mark is the ratio of a setting's rate to the baseline's rate, measured in the same blocks; the dots are "
        "its repeats. The line is its interval, widened so that all intervals hold simultaneously; an arrow means "
        "that it continues beyond the axis. The shaded band covers differences that are too small to matter. A "
        "setting is faster if its interval is entirely to the right of the band, slower if entirely to the left, and "
        "the same if entirely inside. Otherwise it is undecided, and more repeats may settle it. Settings without a "
        "rate share one grey line. The axis is logarithmic: 2x and 0.5x are equally far from 1x.",
    ),
    "heatmap": Caption(
        "Rate by batch size and precision",
        "One tile per setting: columns are batch sizes per device, rows are devices and precisions. The stronger the "
        "colour, the higher the rate. A tile with text instead of a number has no rate; the text is the reason.",
    ),
    "throughput": Caption(
        "Rate against batch size",
        "The total rate of all ranks, with its interval over repeats; an arrow means that the interval continues "
        "beyond the axis. Where a line flattens, a larger batch is no longer worthwhile. A ring marks the knee, the "
        "smallest batch that comes close to the line's best rate, if a larger one was measured. A cross at the bottom "
        "marks a setting without a rate: it ran out of memory, failed, is unsupported or has not run.",
    ),
    "scaling": Caption(
        "Scaling: speed-up over the smallest device count",
        "The speed-up of the same work on more devices, relative to the smallest measured device count. The dashed "
        "line is ideal scaling; a dotted line is the scaling law fitted to a series. Strong scaling keeps the global "
        "batch size constant, weak scaling the batch size per device. More ranks on one processor add no devices, so "
        "no ideal scaling is shown for them.",
    ),
    "efficiency": Caption(
        "Scaling efficiency",
        "The speed-up divided by the ratio of device counts. At 100 %, every added device contributes its full share. "
        "The line through each mark is its interval; an arrow means that it continues beyond the axis.",
    ),
    "memory": Caption(
        "Memory against batch size",
        "The memory that each setting used; the axis says which kind. The dashed line is the limit of the device, or "
        "of the machine on a CPU, if the site specifies it and it is near the plotted values. A cross at the top "
        "marks a setting that ran out of memory.",
    ),
    "drift": Caption(
        "The machine over time",
        "The rate of each repeat of the baseline by its start time. A line joins the repeats of one block. The shaded "
        "band covers differences from their mean that are too small to matter. An arrow marks a run beyond the axis. "
        "If whole blocks are higher or lower than others, the machine drifts; speed-ups are computed within blocks, "
        "so drift does not bias them. If a line is steep, the machine changes within a block, and intervals widen.",
    ),
    "steps": Caption(
        "Steps over time",
        "The duration of each step on the slowest rank: one thin line per run, one band per setting. The warm-up is "
        "drawn but does not affect the rate. A steady run is level; a slope, a jump or regular spikes are reasons to "
        "doubt its rate. All bands share one logarithmic axis, so equal heights are equal ratios. An arrow marks a "
        "step that is too long for the axis.",
    ),
    "series": Caption(
        "What the machine did meanwhile",
        "Readings of one run of the recommended setting and one of the baseline, taken by a process beside the run. "
        "Each band begins at zero; its title gives the quantity and the value at its top. Several ranks or devices "
        "are averaged. A dashed line is a limit. The timed window is shaded; the lighter parts are the warm-up, the "
        "probe pass that divides a step into its parts, and the quality phase.",
    ),
    "breakdown": Caption(
        "Where step time goes",
        "Shares of a step, from a probe pass after the timed window: waiting for data, copying batches to the device, "
        "forward, backward, optimizer, gradient communication, and the loop around them. Communication includes "
        "waiting for the slowest rank. The largest part is the bottleneck; a second part of at least three tenths is "
        "named too. Forward, backward and optimizer count as one part.",
    ),
    "quality": Caption(
        "Quality",
        "The quality of the trained model after a fixed number of samples, or at the end of training to a target. "
        "Lines are intervals over repeats; an arrow means that the interval continues beyond the axis. A setting that "
        "trades quality for speed shows it here. With few repeats the intervals are wide, and the verdict is often "
        "undecided.",
    ),
    "learning": Caption(
        "How the models learned",
        "Training loss and validations of the quality phase, or on the way to a target, a thin line per repeat. The "
        "loss is that of rank 0, averaged over consecutive steps; a dot is a validation. With several folds, the curve "
        "is that of the first. Each band is scaled to its "
        "values; its title gives those at the bottom and at the top. Settings that were trained on the same samples "
        "differ by their options and by chance.",
    ),
    "pareto-cost": Caption("Rate against cost", f"Up is faster, left is cheaper. {_FRONT}"),
    "pareto-energy": Caption("Rate against energy", f"Up is faster, left uses less energy per sample. {_FRONT}"),
    "pareto-memory": Caption(
        "Rate against memory",
        "Up is faster, left uses less memory. The axis says which kind: on a GPU it is the peak of the device that "
        "uses the most, on a CPU the host memory of all ranks when the window closed, which is not a peak and excludes "
        f"the processes that load data. {_FRONT}",
    ),
}


def _of_features(place: str) -> dict[str, Caption]:
    figures = (figure for feature in registry.features() for figure in feature.figures)
    return {figure.name: Caption(figure.title, figure.caption) for figure in figures if figure.place == place}


CAPTIONS: dict[str, Caption] = {
    "speedup": _CORE["speedup"],
    **_of_features("first"),
    **_CORE,
    **_of_features("last"),
    **_of_features("table"),
}
"""Captions, including those of features, keyed by figure in reading order.

A figure's files are `NAME.svg` and `NAME.csv`.
"""

TABLE_FIGURES = frozenset(_of_features("table"))
"""Figures that are shown above the table of the same name."""

"""The explanation of each figure, in one place, for the page, the Markdown report and `snakemake --report` alike.

Snakemake reads captions from files: `python -m accelsweep.report.captions workflows/captions` writes them anew.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
from accelsweep.signals import exit_code_of, parser_for

_FRONT = (
    "A setting is off the Pareto front if the intervals show another as good in everything and better in something. "
    "A setting stays on it where few runs leave this open. The recommended setting and its alternatives are named."
)


@dataclass(frozen=True)
class Caption:
    """A figure's title and the paragraph below it that says how to read it. Plain text, no markup."""

    title: str
    text: str


_CORE: dict[str, Caption] = {
    "speedup": Caption(
        "Speed-up against the baseline",
        "Each mark is the ratio of a setting's rate to the baseline's rate, measured in the same blocks. The dots are "
        "its repeats. The line is its interval, widened so that all of them are sure at once. It ends in an arrow "
        "where it leaves the axis. The shaded band holds the differences that count as none. An interval wholly right "
        "of it is faster, wholly left of it slower, wholly inside it the same. Anything else is undecided; more "
        "repeats may settle it. Settings without a rate share one grey line. The axis is logarithmic: 2x and 0.5x lie "
        "equally far from 1x.",
    ),
    "heatmap": Caption(
        "Rate by batch size and precision",
        "One tile per setting: batch size per device across, device and precision down. The stronger the "
        "tile's colour, the higher its rate. A tile with words in place of a number has no rate; the words are the "
        "reason.",
    ),
    "throughput": Caption(
        "Rate against batch size",
        "The rate of all ranks together, with the interval over repeats, which ends in an arrow where it leaves the "
        "axis. Where a line flattens, a "
        "larger batch no longer pays. A ring marks the knee, the smallest batch that comes close to the line's "
        "best rate, if a larger one was measured."
        " A cross at the foot of the chart is a setting without a rate. It ran out of memory, failed, is "
        "not supported or has not run.",
    ),
    "scaling": Caption(
        "Scaling: speed-up over the fewest devices",
        "The speed-up of the same work on more devices, over the fewest devices that were measured. The dashed "
        "line is ideal scaling, a dotted one is the scaling law of a series. Strong scaling keeps the global batch; "
        "weak scaling keeps the batch per device. "
        "More ranks on one processor add no device, so there is no ideal for them.",
    ),
    "efficiency": Caption(
        "Scaling efficiency",
        "The speed-up divided by the ratio of the numbers of devices. At 100 %, every added device brings its full "
        "share. The line through each mark is its interval, which ends in an arrow where it leaves the axis.",
    ),
    "memory": Caption(
        "Memory against batch size",
        "The memory that each setting took; the axis names its kind. The dashed line is the limit of the device, or of "
        "the machine on a CPU, where the site states it and it is near. A cross at the top is a setting that ran out "
        "of memory.",
    ),
    "drift": Caption(
        "The machine over time",
        "The rate of each repeat of the baseline by the time at which it began. A line joins the repeats of one block. "
        "The shaded band holds the differences from their mean that count as none. An arrow is a run beyond the axis. "
        "Where whole blocks lie higher or lower, the machine drifts. Speed-ups are taken within blocks, so that costs "
        "no comparison. Where a line is steep, the machine changes within a block, and intervals widen.",
    ),
    "steps": Caption(
        "Steps over time",
        "The seconds that each step of the slowest rank took, as a thin line for each run and a band for each setting. "
        "The warm-up is drawn too, and does not count. A steady run is level; a slope, a jump or regular spikes are "
        "reasons to doubt its rate. All bands share one logarithmic axis, so equal heights are equal ratios. An arrow "
        "is a step beyond it.",
    ),
    "breakdown": Caption(
        "Where the time of a step goes",
        "Shares of a step, from a probe pass after the timed window. The parts are waiting for data, moving batches, "
        "forward, backward, optimizer, exchanging gradients, and the loop around them. Exchanging gradients includes "
        "waiting for the slowest rank. The largest part is the bottleneck, and a second one of three tenths is named "
        "too. Forward, backward and optimizer count as one part.",
    ),
    "quality": Caption(
        "Quality",
        "The quality of the trained model after a fixed number of samples, or at the end of training to a target. The "
        "lines are intervals over repeats, with an arrow where they leave the axis. A setting that gains speed by "
        "losing quality shows it here. With few repeats the intervals are wide, and the verdict is often undecided.",
    ),
    "pareto-cost": Caption(
        "Rate against cost",
        "Upwards is faster, leftwards is cheaper. " + _FRONT,
    ),
    "pareto-energy": Caption(
        "Rate against energy",
        "Upwards is faster, leftwards takes less energy per sample. " + _FRONT,
    ),
    "pareto-memory": Caption(
        "Rate against memory",
        "Upwards is faster, leftwards needs less memory. The axis names the kind of memory. On a GPU it is the peak of "
        "the fullest device. On a CPU it is the host memory of all ranks when the window closed. That is no peak, and "
        "leaves out the processes that load data. " + _FRONT,
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
"""The figures of the core and of all features, in the order in which a reader meets them."""

TABLE_FIGURES = frozenset(_of_features("table"))
"""Figures that belong above the table of the same name."""
"""Figure name -> caption, in the order of the report. A figure's files are `NAME.svg` and `NAME.csv`."""


def caption_files() -> dict[str, str]:
    """Return the captions as reStructuredText, which Snakemake reads, by file name."""
    return {f"{name}.rst": f"{_plain(caption.text)}\n" for name, caption in CAPTIONS.items()}


def _plain(text: str) -> str:
    """Return `text` with everything escaped that reStructuredText or Snakemake's jinja2 would read as markup."""
    return re.sub(r"([\\*`|_{}])", r"\\\1", text)


def main(arguments: list[str] | None = None) -> int:
    """Write the captions into the folder named on the command line and return the exit code."""
    parser = parser_for("report.captions", __doc__)
    parser.add_argument("folder", type=Path, help="where to, e.g. workflows/captions")
    options = parser.parse_args(arguments)
    return exit_code_of(lambda: write_captions(options.folder))


def write_captions(folder: Path) -> None:
    """Write every caption into `folder`, and remove those of figures that no longer exist."""
    files = caption_files()
    for stale in folder.glob("*.rst"):
        if stale.name not in files:
            stale.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())

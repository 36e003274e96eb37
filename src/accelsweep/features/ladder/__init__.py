"""Ladders of optimisations: each rung keeps all previous ones and adds one (`report.ladder`)."""

from accelsweep.registry import ConfigKeys, Feature, Figure, Section, Tables

FEATURE = Feature(
    name="ladder",
    config_keys=(ConfigKeys("report", "accelsweep.features.ladder.model:LadderOptions"),),
    grid_points="accelsweep.features.ladder.planning:grid_points",
    section=Section("accelsweep.features.ladder.model:Ladder", "accelsweep.features.ladder.analysis:build_section"),
    tables=Tables("accelsweep.features.ladder.report:tables"),
    figures=(
        Figure(
            "ladder",
            "Ladder of optimisations",
            "Each rung keeps all previous rungs and adds one optimisation. A mark is the ratio of a rung's rate to "
            "that of the first rung, measured in the same blocks, with its interval; the distance to the mark above is "
            "the gain of this rung alone. A rung that was not measured or cannot be compared with the first one has no "
            "mark; the table gives the reason. The axis is logarithmic.",
            "accelsweep.features.ladder.figure:ladder_figure",
            place="first",
        ),
    ),
    last_lines="accelsweep.features.ladder.report:last_lines",
)

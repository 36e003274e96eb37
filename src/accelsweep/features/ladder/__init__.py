"""Ladders of optimisations: each rung keeps all rungs before it and adds one (`report.ladder`)."""

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
            "Each rung keeps all rungs before it and adds one optimisation. Each mark is the ratio of a rung's rate "
            "to the first rung's, measured in the same blocks, with its interval. The distance to the mark above is "
            "the gain of the rung itself. A rung has no mark if it was not measured or cannot be compared with the "
            "first; the table has the reason. The axis is logarithmic.",
            "accelsweep.features.ladder.report:ladder_figure",
            place="first",
        ),
    ),
    last_lines="accelsweep.features.ladder.report:last_lines",
)

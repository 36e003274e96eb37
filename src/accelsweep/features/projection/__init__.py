"""Projections of the best measured setting onto unavailable devices, and `accelsweep project`."""

from accelsweep.registry import Command, Feature, Figure, Section, Tables

FEATURE = Feature(
    name="projection",
    commands=(
        Command(
            "project",
            "Estimate the best setting's speed on devices that you do not have. No measurement, no verdict.",
            "accelsweep.features.projection.command:project",
            group="Decide",
            examples={
                "accelsweep project quickstart": "the devices in the report",
                "accelsweep project quickstart --onto h100-sxm,l4": "two devices that you name",
            },
        ),
    ),
    answers=("accelsweep.features.projection.command:ProjectAnswer",),
    section=Section(
        "accelsweep.features.projection.model:Projections", "accelsweep.features.projection.analysis:build_section"
    ),
    experiment_tags="accelsweep.features.projection.report:experiment_tags",
    tables=Tables("accelsweep.features.projection.report:tables"),
    figures=(
        Figure(
            "projections",
            "Projected rates on other devices",
            "These rates were not measured. Each dashed bar is the 90 % interval of a projection, with a tick at its "
            "middle. The vertical line is the rate measured here. The axis is logarithmic. Projections have no "
            "verdicts, which require a measurement on the device.",
            "accelsweep.features.projection.figure:projection_figure",
            place="table",
        ),
    ),
)

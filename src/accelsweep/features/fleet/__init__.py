"""`accelsweep fleet`: runs the same settings on each node of a cluster, to find slower, hotter or throttled nodes."""

from accelsweep.registry import Command, Feature, Section, Tables

FEATURE = Feature(
    name="fleet",
    commands=(
        Command(
            "fleet",
            "Measure the same settings on each node of a cluster, and find nodes that are slower, hotter or throttled.",
            "accelsweep.features.fleet.command:fleet",
            overrides=True,
        ),
    ),
    answers=("accelsweep.features.fleet.command:FleetAnswer",),
    request="accelsweep.features.fleet.command:FleetRequest",
    plan_part="accelsweep.features.fleet.planning:Fleet",
    plan_blocks="accelsweep.features.fleet.planning:plan_blocks",
    section=Section(
        "accelsweep.features.fleet.findings:FleetFinding", "accelsweep.features.fleet.analysis:build_section"
    ),
    tables=Tables("accelsweep.features.fleet.report:tables", place="first"),
    last_lines="accelsweep.features.fleet.report:tables",
)

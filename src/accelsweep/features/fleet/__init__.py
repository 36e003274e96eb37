"""`accelsweep fleet`: runs the same settings on each node of a cluster, to find slower, hotter or throttled nodes."""

from accelsweep.registry import Command, Feature, Section, Tables

FEATURE = Feature(
    name="fleet",
    commands=(
        Command(
            "fleet",
            "Measure a cluster's nodes, and find slow, hot or throttled ones.",
            "accelsweep.features.fleet.command:fleet",
            group="Measure",
            examples={
                "accelsweep fleet site=mine batch_size=64": "every node of the cluster in conf/site/mine.yaml",
                "accelsweep fleet site=mine --nodes 'gpu[1-3],gpu7'": "only these nodes",
            },
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

"""Tests of published claims: `report.claims` of an experiment, and `accelsweep claims`."""

from accelsweep.registry import Command, ConfigKeys, Feature, Figure, Section, Tables

FEATURE = Feature(
    name="claims",
    requires=("imports", "projection"),
    commands=(
        Command(
            "claims",
            "Test well-known claims about GPUs on this machine. Writes reports/claims.",
            "accelsweep.features.claims.command:claims",
            group="Measure",
            examples={
                "accelsweep claims --minutes 30": "as many claims as half an hour allows",
                "accelsweep claims mixed_precision": "one claim",
            },
        ),
    ),
    config_keys=(ConfigKeys("report", "accelsweep.features.claims.model:ClaimsOptions"),),
    report_options="accelsweep.features.claims.model:with_published",
    merge_options="accelsweep.features.claims.model:merged",
    reserved_names=("claims",),
    request="accelsweep.features.claims.command:ClaimsRequest",
    section=Section("accelsweep.features.claims.model:Claims", "accelsweep.features.claims.cross_sweep:build_section"),
    tables=Tables("accelsweep.features.claims.report:tables"),
    figures=(
        Figure(
            "published",
            "Published values next to ours",
            "Each line is a figure of a claim. The dot is the value measured here, with its interval. A hollow diamond "
            "is a published value, relative to ours and without an interval. It comes from another machine, other "
            "software and often other data, so its distance from ours is not a verdict. The table of published figures "
            "lists the names. The axis is logarithmic.",
            "accelsweep.features.claims.figure:published_figure",
        ),
    ),
    last_lines="accelsweep.features.claims.report:last_lines",
)

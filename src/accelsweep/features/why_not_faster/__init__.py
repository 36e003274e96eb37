"""Why not faster: one measured cause for each comparison that ends with "slower" or "same"."""

from accelsweep.registry import Feature, Section, Tables

FEATURE = Feature(
    name="why_not_faster",
    requires=("profile",),
    section=Section(
        "accelsweep.features.why_not_faster.model:WhyNotFaster",
        "accelsweep.features.why_not_faster.causes:build_section",
    ),
    tables=Tables("accelsweep.features.why_not_faster.report:tables"),
    last_lines="accelsweep.features.why_not_faster.report:last_lines",
    closer_look="accelsweep.features.why_not_faster.closer_look:profile_one_pair",
)

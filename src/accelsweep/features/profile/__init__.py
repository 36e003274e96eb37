"""`accelsweep profile`: where a step's time goes, by operator and module, in one or two settings."""

from accelsweep.registry import Command, Feature, Section, SweepFile, Tables

FEATURE = Feature(
    name="profile",
    commands=(
        Command(
            "profile",
            "Show where a step's time goes, by operator and module, with a trace; for two settings, the difference.",
            "accelsweep.features.profile.command:profile",
        ),
    ),
    answers=("accelsweep.features.profile.command:ProfileAnswer",),
    files=(
        SweepFile(
            "profiles/*/profile.json",
            "accelsweep.features.profile.model:SettingProfile",
            check="accelsweep.features.profile.model:check_archived",
            published=True,
        ),
        SweepFile("profiles/*/trace.json.gz", published=True),
    ),
    section=Section("accelsweep.features.profile.model:Profiles", "accelsweep.features.profile.report:build_section"),
    tables=Tables("accelsweep.features.profile.report:tables"),
)

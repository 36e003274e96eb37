"""`accelsweep profile`: where a step's time goes, by operator and module, in one or two settings."""

from accelsweep.registry import Command, Feature, Section, SweepFile, Tables

FEATURE = Feature(
    name="profile",
    commands=(
        Command(
            "profile",
            "Show where a step's time goes, by operator and module. Writes a trace.",
            "accelsweep.features.profile.command:profile",
            group="Find causes",
            examples={
                "accelsweep profile quickstart batch_size=32": "one setting",
                "accelsweep profile quickstart 3f2a 9c01": "two settings, and what differs",
            },
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

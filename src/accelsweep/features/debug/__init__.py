"""`accelsweep debug`: run a setting in the foreground, for breakpoint() and pdb."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="debug",
    commands=(
        Command(
            "debug",
            "Run one setting in the foreground, with breakpoints. Nothing is recorded.",
            "accelsweep.features.debug.command:debug",
            group="Find causes",
            examples={
                "accelsweep debug quickstart batch_size=32": "the setting with this value",
                "accelsweep debug quickstart 3f2a": "a setting by the first characters of its ID",
            },
        ),
    ),
)

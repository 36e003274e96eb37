"""`accelsweep debug`: run a setting in the foreground, for breakpoint() and pdb."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="debug",
    commands=(
        Command(
            "debug",
            "Run one setting in the foreground, in a temporary folder; breakpoint() and pdb work, and nothing is "
            "recorded.",
            "accelsweep.features.debug.command:debug",
        ),
    ),
)

"""`accelsweep history`: the rate of each setting over commits or dates, and where it changed."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="history",
    requires=("archives",),
    commands=(
        Command(
            "history",
            "Show the rate of each setting over commits or dates, with the points where it changed, and write a page.",
            "accelsweep.features.history.command:history",
        ),
    ),
    answers=("accelsweep.features.history.command:HistoryAnswer",),
)

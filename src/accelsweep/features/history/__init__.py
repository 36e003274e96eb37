"""`accelsweep history`: the rate of each setting over commits or dates, and where it changed."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="history",
    requires=("archives",),
    commands=(
        Command(
            "history",
            "Show how each setting's rate changed over commits or dates. Writes a page.",
            "accelsweep.features.history.command:history",
            group="Read results",
            examples={
                "accelsweep history nightly-1 nightly-2 nightly-3": "three sweeps, in the order of their commits",
                "accelsweep history old.zip quickstart": "an exported sweep and one in this folder",
            },
        ),
    ),
    answers=("accelsweep.features.history.command:HistoryAnswer",),
)

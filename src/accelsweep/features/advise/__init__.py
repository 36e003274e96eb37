"""`accelsweep advise`: how much hardware a training run needs, and which is cheapest."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="advise",
    requires=("projection",),
    commands=(
        Command(
            "advise",
            "Show how much hardware a training run needs and which is cheapest, as measured here or projected.",
            "accelsweep.features.advise.command:advise_command",
        ),
    ),
    answers=("accelsweep.features.advise.command:AdviseAnswer",),
)

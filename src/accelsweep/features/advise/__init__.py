"""`accelsweep advise`: how much hardware a training run needs, and which is cheapest."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="advise",
    requires=("projection",),
    commands=(
        Command(
            "advise",
            "Find how much hardware a training run needs, and which is cheapest. Uses what was measured here, and "
            "projections.",
            "accelsweep.features.advise.command:advise_command",
            group="Decide",
            examples={
                "accelsweep advise quickstart --epochs 9 --deadline 24h --prices cloud": "within a day, with prices",
                "accelsweep advise quickstart --epochs 9 --onto h100-sxm,l4": "what two devices would take",
            },
        ),
    ),
    answers=("accelsweep.features.advise.command:AdviseAnswer",),
)

"""`accelsweep watch`: whether a real training is as fast as its setting was in a sweep."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="watch",
    commands=(
        Command(
            "watch",
            "Run your training, and compare its speed with what a sweep measured.",
            "accelsweep.features.watch.command:watch",
            group="Find causes",
            examples={
                "accelsweep watch train -- python src/train.py": "compare with the sweep `train` every few minutes",
                "accelsweep watch train --setting batch_size=64 -- python src/train.py": "with one of its settings",
            },
        ),
    ),
)

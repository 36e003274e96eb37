"""`accelsweep watch`: whether a real training is as fast as its setting was in a sweep."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="watch",
    commands=(
        Command(
            "watch",
            "Run your training command, and compare its rate with what a sweep measured, every few minutes.",
            "accelsweep.features.watch.command:watch",
        ),
    ),
)

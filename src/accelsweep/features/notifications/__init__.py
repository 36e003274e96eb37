"""`--notify`: messages on completion, first failure or stall."""

from accelsweep.registry import Feature, RunOption

FEATURE = Feature(
    name="notifications",
    run_options=(
        RunOption(
            "notify",
            "accelsweep.features.notifications.options:Notify",
            repeated="accelsweep.features.notifications.options:repeated",
        ),
    ),
    listener="accelsweep.features.notifications.notify:listener",
)

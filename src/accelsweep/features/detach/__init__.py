"""`--detach` and `accelsweep attach`: a sweep's driver runs in the background, in a job, a service or tmux."""

from accelsweep.registry import Command, ConfigKeys, Feature, RunOption

FEATURE = Feature(
    name="detach",
    commands=(
        Command(
            "attach",
            "Follow a sweep that runs in the background. Ctrl-C leaves it running.",
            "accelsweep.features.detach.command:attach_command",
            group="Manage",
            examples={
                "accelsweep attach quickstart": "a sweep that was started with --detach",
                "accelsweep attach claims": "all claims, started with `accelsweep claims --detach`",
            },
        ),
    ),
    config_keys=(ConfigKeys("site.slurm", "accelsweep.features.detach.backends:DetachOptions"),),
    run_options=(RunOption("detach", "accelsweep.features.detach.options:Detach"),),
    run_elsewhere="accelsweep.features.detach.command:detach",
    background_driver="accelsweep.features.detach.backends:DetachedDriver",
)

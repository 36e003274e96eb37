"""`accelsweep ab`: compare versions of the sources, or environments, as an additional axis."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="ab",
    commands=(
        Command(
            "ab",
            "Compare commits or environments of your code, measured side by side.",
            "accelsweep.features.ab.command:ab",
            group="Measure",
            examples={
                "accelsweep ab main HEAD batch_size=64": "two commits of your project, in the same blocks",
                "accelsweep ab main HEAD --fail-if slower:2%": "exit code 3 if HEAD is slower, for a CI gate",
            },
            overrides=True,
        ),
    ),
    answers=("accelsweep.features.ab.command:AbAnswer",),
    request="accelsweep.features.ab.command:VersionsRequest",
    before_measuring="accelsweep.features.ab.version_trees:restore_trees",
    before_deleting="accelsweep.features.ab.version_trees:remove_trees",
    recommend="accelsweep.features.ab.recommendation:about_versions",
)

"""`accelsweep ab`: versions of the user's sources, or environments, as one more axis, measured side by side."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="ab",
    commands=(
        Command(
            "ab",
            "Compare commits of your repository, or environments, measured side by side in each block.",
            "accelsweep.features.ab.command:ab",
            overrides=True,
        ),
    ),
    answers=("accelsweep.features.ab.command:AbAnswer",),
    request="accelsweep.features.ab.command:VersionsRequest",
    before_measuring="accelsweep.features.ab.trees:restore_trees",
    before_deleting="accelsweep.features.ab.trees:remove_trees",
    recommend="accelsweep.features.ab.recommendation:about_versions",
)

"""`accelsweep ab`: compare versions of the sources, or environments, as an additional axis."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="ab",
    commands=(
        Command(
            "ab",
            "Compare commits of your repository, or environments, in the same blocks.",
            "accelsweep.features.ab.command:ab",
            overrides=True,
        ),
    ),
    answers=("accelsweep.features.ab.command:AbAnswer",),
    request="accelsweep.features.ab.command:VersionsRequest",
    before_measuring="accelsweep.features.ab.version_trees:restore_trees",
    before_deleting="accelsweep.features.ab.version_trees:remove_trees",
    recommend="accelsweep.features.ab.recommendation:about_versions",
)

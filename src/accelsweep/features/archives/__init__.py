"""`accelsweep export` and `accelsweep import`: a sweep as one file."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="archives",
    commands=(
        Command(
            "export",
            "Pack a sweep into one file. Its report is regenerated first.",
            "accelsweep.features.archives.command:export",
            group="Manage",
            examples={
                "accelsweep export quickstart": "write quickstart.zip",
                "accelsweep export quickstart --to /tmp/for-ann.zip": "write another file",
            },
        ),
        Command(
            "import",
            "Add an exported sweep or published results to this folder. Everything is checked first.",
            "accelsweep.features.archives.command:import_",
            group="Manage",
            examples={
                "accelsweep import quickstart.zip": "a sweep that `accelsweep export` packed",
                "accelsweep import summary.json --from milabench --device 'NVIDIA L40S'": "published results",
            },
        ),
    ),
    open_file="accelsweep.features.archives.check:opened",
)

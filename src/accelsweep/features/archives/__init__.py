"""`accelsweep export` and `accelsweep import`: a sweep as one file."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="archives",
    commands=(
        Command(
            "export",
            "Pack a sweep into one file: plan, records, findings, report, versions, checksums. Regenerates its report "
            "first.",
            "accelsweep.features.archives.command:export",
        ),
        Command(
            "import",
            "Import an exported sweep or third-party published results into this folder. Everything is checked first.",
            "accelsweep.features.archives.command:import_",
        ),
    ),
    open_file="accelsweep.features.archives.check:opened",
)

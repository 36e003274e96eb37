"""`accelsweep export` and `accelsweep import`: a sweep as one file."""

from accelsweep.registry import Command, Feature

FEATURE = Feature(
    name="archives",
    commands=(
        Command(
            "export",
            "Pack a sweep into one file: plan, records, findings, report, versions, checksums. Writes its report "
            "again.",
            "accelsweep.features.archives.command:export",
        ),
        Command(
            "import",
            "Bring an exported sweep, or others' published results, into this folder. All is checked before it is "
            "written.",
            "accelsweep.features.archives.command:import_",
        ),
    ),
    open_file="accelsweep.features.archives.check:opened",
)

"""Results published by others, imported with their source: `accelsweep import FILE --from SOURCE`."""

from accelsweep.registry import Feature, Section, Tables

FEATURE = Feature(
    name="imports",
    import_rows="accelsweep.features.imports.report:import_rows",
    section=Section(
        "accelsweep.features.imports.model:ImportedRows", "accelsweep.features.imports.report:build_section"
    ),
    tables=Tables("accelsweep.features.imports.report:tables"),
)

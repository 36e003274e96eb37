"""Grid Engine as a scheduler (`site.scheduler=grid_engine`)."""

from accelsweep.registry import Feature, SchedulerEntry

FEATURE = Feature(
    name="grid_engine",
    scheduler=SchedulerEntry(
        name="grid_engine",
        title="Grid Engine",
        implementation="accelsweep.features.grid_engine.scheduler:GridEngineScheduler",
        job="accelsweep.features.grid_engine.scheduler:GridEngineJob",
        variables=("JOB_ID", "NSLOTS"),
        options="accelsweep.features.grid_engine.site:GridEngine",
        check="accelsweep.features.grid_engine.site:check_options",
        says_no_memory="accelsweep.features.grid_engine.scheduler:is_out_of_memory",
        draft_source="qhost and qconf",
        draft="accelsweep.features.grid_engine.site:draft",
    ),
)

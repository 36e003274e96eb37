"""Grid Engine as a scheduler (`site.scheduler=grid_engine`)."""

from accelsweep.registry import Feature, Scheduler

FEATURE = Feature(
    name="grid_engine",
    scheduler=Scheduler(
        name="grid_engine",
        title="Grid Engine",
        engine="accelsweep.features.grid_engine.scheduler:GridEngineEngine",
        job="accelsweep.features.grid_engine.scheduler:GridEngineJob",
        variables=("JOB_ID", "NSLOTS"),
        options="accelsweep.features.grid_engine.site:GridEngine",
        check="accelsweep.features.grid_engine.site:refuse_unfit_grid_engine",
        says_no_memory="accelsweep.features.grid_engine.scheduler:tells_of_memory",
        draft="accelsweep.features.grid_engine.site:draft",
    ),
)

"""`task=cold_start`: how much longer the first answer takes than a usual one."""

from accelsweep.registry import Feature, Figure, Tables, Task

FEATURE = Feature(
    name="cold_start",
    tasks=(
        Task(
            name="cold_start",
            task="cold_start",
            target="accelsweep_cold_start.task:ColdStart",
            rates=("samples_per_second",),
            unused_keys=("optimizer", "trainer"),
            without_loop="does not train",
        ),
    ),
    metrics="accelsweep_cold_start.report:METRICS",
    tables=Tables("accelsweep_cold_start.report:tables"),
    figures=(
        Figure(
            name="cold_start",
            title="First answers",
            caption="The time of the first answer over the mean time of an answer in the window, by setting.",
            draw="accelsweep_cold_start.report:figure",
            place="table",
        ),
    ),
)

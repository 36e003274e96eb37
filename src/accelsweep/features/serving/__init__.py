"""Inference under a query load (`measure.scenario=server`), and checks with MLPerf's LoadGen."""

from accelsweep.registry import BATCH_SEARCH_KEYS, GRADIENT_KEYS, QUALITY_KEYS, TARGET_KEYS, ConfigKeys, Feature, Task

_UNUSED = ("optimizer", "trainer", *GRADIENT_KEYS, *TARGET_KEYS, *QUALITY_KEYS, *BATCH_SEARCH_KEYS)
_LOAD = ("serving.latency_ms", "serving.latency_percentile", "serving.max_wait_ms", "serving.workers")

FEATURE = Feature(
    name="serving",
    config_keys=(ConfigKeys("", "accelsweep.features.serving.options:ServingOptions"),),
    tasks=(
        Task(
            "serving",
            "inference",
            "accelsweep.features.serving.task:UnderLoad",
            rates=("queries_per_second",),
            unused_keys=(*_UNUSED, "serving.generator"),
            when=(("measure.scenario", "server"),),
            without_loop="does not train",
            check="accelsweep.features.serving.options:check",
            unsupported="accelsweep.features.serving.options:unsupported",
        ),
        Task(
            "inference",
            "inference",
            "accelsweep.features.serving.task:AskedTwice",
            rates=("samples_per_second",),
            unused_keys=(*_UNUSED, *_LOAD),
            when=(("serving.generator", "loadgen"),),
            without_loop="does not train",
        ),
    ),
    metrics="accelsweep.features.serving.metrics:METRICS",
    setting_doubts="accelsweep.features.serving.doubts:setting_doubts",
)

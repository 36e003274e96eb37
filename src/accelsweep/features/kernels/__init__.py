"""`task=kernels`: single operations, to find a device's best rate and the size at which it starts to pay off."""

from accelsweep.registry import BATCH_SEARCH_KEYS, MODULE_KEYS, QUALITY_KEYS, TARGET_KEYS, Feature, Task

FEATURE = Feature(
    name="kernels",
    tasks=(
        Task(
            "kernels",
            "kernels",
            "accelsweep.features.kernels.kernels:KernelTask",
            rates=("samples_per_second", "flops_per_second", "bytes_per_second"),
            unused_keys=(
                *("optimizer", "trainer", "data", "measure.fake_loader", "measure.scenario"),
                *(*MODULE_KEYS, *TARGET_KEYS, *QUALITY_KEYS, *BATCH_SEARCH_KEYS),
            ),
            without_loop="does not train",
            check="accelsweep.features.kernels.checks:check",
        ),
    ),
    metrics="accelsweep.features.kernels.metrics:METRICS",
)

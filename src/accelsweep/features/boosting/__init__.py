"""`task=boosting`: boosted trees, trained with XGBoost, LightGBM or scikit-learn."""

from accelsweep.registry import BATCH_SEARCH_KEYS, MODULE_KEYS, QUALITY_KEYS, TARGET_KEYS, Feature, Task

FEATURE = Feature(
    name="boosting",
    tasks=(
        Task(
            "boosting",
            "boosting",
            "accelsweep.features.boosting.task:Boosting",
            rates=("row_rounds_per_second", "samples_per_second"),
            unused_keys=(
                *("optimizer", "trainer", "batch_size", "precision", "measure.fake_loader", "measure.scenario"),
                *("data.placement", "data.preprocess", "data.num_workers", "data.prefetch_factor"),
                *(
                    "matmul_precision",
                    *MODULE_KEYS,
                    *TARGET_KEYS,
                    *QUALITY_KEYS,
                    *(key for key in BATCH_SEARCH_KEYS if key != "measure.rank_memory_bytes"),
                ),
            ),
            without_loop="delegates training to a library",
            check="accelsweep.features.boosting.libraries:check",
            unsupported="accelsweep.features.boosting.libraries:cannot_boost",
            version_of="accelsweep.features.boosting.libraries:version_of",
            model_trains=True,
        ),
    ),
    metrics="accelsweep.features.boosting.metrics:METRICS",
    generated_data=("accelsweep.features.boosting.rows.MadeRows",),
)

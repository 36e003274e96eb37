"""Small files as others publish their results: of each source a whole one."""

from __future__ import annotations

import json


def event(key: str, value: object = None, time_ms: int = 0, **metadata: object) -> str:
    """Return a line of a log of MLPerf's."""
    return ":::MLLOG " + json.dumps({"key": key, "value": value, "time_ms": time_ms, "metadata": metadata})


MLPERF = "\n".join(
    (
        "loading",
        event("submission_benchmark", "resnet"),
        event("submission_org", "somebody"),
        "0: " + event("submission_platform", "8xMI325X"),
        event("global_batch_size", 3264),
        event("run_start", time_ms=1_000),
        event("run_stop", time_ms=1_280_241, status="success"),
    )
)
MILABENCH = {
    "resnet50": {"successes": 1, "train_rate": {"mean": 212.5, "std": 44.8}, "per_gpu": {"0": {}, "1": {}}},
    "bert": {"successes": 0, "train_rate": {"mean": 98.9}},
    "reformer": {"successes": 0, "failures": 1},
}
TIMM_ROWS = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count\n"
    "resnet50,224,4000.5,60.1,256.0,25.56\n"
    "resnet50,288,2400,,256,25.56\n"
    "vit_giant,224,,,,1000\n"
)
LAMBDA_ROWS = """name_gpu,num_gpu,watt,price,resnet50,gnmt
RTX 3090,1.0,350,2750,905,86080
Dell 2x H100 80GB SXM5,2.0,1400,73437,5179,0
"""
NEWER_LAMBDA_ROWS = (
    ",ssd,resnet50\nLambdaBM_ENG04_HTOff_8xH200_140GB_SXM_h200_v2,4769,16643\nLambdaOD_1xGH200_96GB_host_v2,0,2844\n"
)
PUBLISHED = {
    "timm": ("benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv", TIMM_ROWS),
    "lambda": ("pytorch-train-throughput-v2-fp32.csv", NEWER_LAMBDA_ROWS),
    "mlperf": ("result_0.txt", MLPERF),
    "milabench": ("summary.json", json.dumps(MILABENCH)),
}
"""A file of each source: its name, which tells what its rows do not, and its text."""

"""Truth: rates of networks that others have published, the batch that is too large, and answers instead of training."""

from __future__ import annotations

import cases
from calibration import by_case, events_against_clock, window
from checks import CannotApply, Check, Findings
from place import ROOT, Place, Record

PUBLISHED = {"H100": 2787.0, "H200": 3079.0}
"""Images per second of ResNet-50 in training on one SXM board, batch 256, mixed precision.

Reported figures whose source was not looked up again.
"""
PLAUSIBLE = (0.5, 2.0)
"""Share of the published figure: that is a tuned loop on real images, ours plain PyTorch on random ones on the device.

An H100 reached 1.41 in bf16 and 1.63 in fp16, with a loop by hand in agreement (docs/evidence).
"""


def networks(place: Place, findings: Findings) -> None:
    """Every network has a number in every precision, in the order that the hardware predicts."""
    wanted = cases.truth(place.small)
    place.cases(wanted)
    found = by_case(place.sweep("truth", "experiment=cases", f"case={','.join(wanted)}", *window(place), *few(place)))
    findings.table(
        "Networks",
        ("case", "samples/s", "step ms", "MFU", "of datasheet", "GiB", "J/sample", "doubts"),
        [_row(name, found[name]) for name in wanted],
    )
    findings.expect("every network is measured", found.keys() == wanted.keys(), sorted(found))
    events_against_clock(findings, found, 0.25 if place.small else 0.01, busy=place.small)
    if place.small:
        findings.note("at small scale rates say nothing, so neither their order nor any published figure is judged")
        return
    rate = {name: record.seen("samples_per_second") for name, record in found.items()}
    _published(findings, found, rate)
    _order(findings, rate)
    for name, record in found.items():
        share = record.metric("mfu_of_datasheet")
        if share is not None:
            findings.expect(f"{name}: its share of the datasheet's peak is below 1", 0 < share < 1, f"{share:.3f}")


def _row(name: str, record: Record) -> tuple[object, ...]:
    memory, joules = record.metric("peak_memory_allocated_bytes"), record.metric("energy_joules")
    rate, seconds = record.seen("samples_per_second"), record.seen("window_seconds")
    step = 1e3 * seconds / len(record.window_steps())
    each = None if joules is None else joules / (rate * seconds)
    shares = (record.metric("mfu"), record.metric("mfu_of_datasheet"))
    return (name, rate, step, *shares, memory and memory / 2**30, each, ", ".join(record.doubts))


def _published(findings: Findings, found: dict[str, Record], rate: dict[str, float]) -> None:
    device = found["resnet50_bf16"].body["effective"]["device_names"][0]
    best = max(rate[name] for name in rate if name.startswith("resnet50"))
    rows: list[tuple[str, float, float | None]] = [
        ("published, H100 SXM", PUBLISHED["H100"], None),
        ("published, H200", PUBLISHED["H200"], None),
    ]
    theirs = next((figure for word, figure in PUBLISHED.items() if word in device), None)
    rows += [(f"{name}, here ({device})", rate[name], theirs and rate[name] / theirs) for name in rate if "50" in name]
    findings.table("ResNet-50: images per second", ("what", "images/s", "over the published one"), rows)
    if theirs is None:
        findings.note(f"no figure was published for {device}")
        return
    low, high = PLAUSIBLE
    findings.expect("the fastest ResNet-50 is plausible", low <= best / theirs <= high, f"{best / theirs:.2f}")


def _order(findings: Findings, rate: dict[str, float]) -> None:
    pairs = (
        ("resnet50_bf16", "resnet50_fp32", 1.5),
        ("resnet50_fp16", "resnet50_fp32", 1.5),
        ("resnet50_tf32", "resnet50_fp32", 1.1),
    )
    for fast, slow, least in pairs:
        ratio = rate[fast] / rate[slow]
        findings.expect(f"{fast} is at least {least:g} times as fast as {slow}", ratio >= least, f"{ratio:.2f}")
    convolutions = rate["resnet50_32_true"] / rate["resnet50_fp32"]
    findings.note(
        f"32-true as it comes is {convolutions:.2f} times as fast as without TF32: torch leaves it on in cuDNN"
    )


SAMPLER_CORES = 0.01
"""The largest share of a core that sampling may take."""


def meanwhile(place: Place, findings: Findings) -> None:
    """What was sampled during the networks' windows: a busy device, its power below its limit, at little cost."""
    found = {name: record for name, record in by_case(place.records("truth")).items() if record.outcome == "measured"}
    if not found:
        raise CannotApply("the networks were not measured")
    if place.device == "cpu":
        raise CannotApply("a cpu device reports no state of its own")
    columns = ("utilisation", "power_watts", "power_limit_watts", "power_capped", "throttled", "celsius", "sm_mhz")
    rows = {name: [record.metric(f"gpu_{column}_mean") for column in columns] for name, record in found.items()}
    cores = {name: record.metric("sampler_cpu_cores") for name, record in found.items()}
    findings.table(
        "What the device did in the window, on average",
        ("case", *columns, "sampler, cores"),
        [(name, *row, cores[name]) for name, row in rows.items()],
    )
    findings.expect("everything is read", not any(None in row for row in rows.values()), rows)
    if place.small:
        findings.note("at small scale a window has too few readings to be judged")
        return
    for name in ("resnet50_bf16", "resnet50_fp32"):
        busy, watts, limit = rows[name][:3]
        findings.expect(f"{name}: the device is busy in the window", (busy or 0.0) > 0.8, busy)
        at_limit = watts is not None and limit is not None and 0 < watts <= 1.1 * limit
        findings.expect(f"{name}: its power is at most its limit", at_limit, f"{watts} W of {limit} W")
    known = [share for share in cores.values() if share is not None]
    findings.expect("sampling takes at most 1 % of a core", max(known, default=1.0) <= SAMPLER_CORES, cores)


def matmul_precision(place: Place, findings: Findings) -> None:
    """The key has the effect of NVIDIA's own variable: TF32 in matrix products, read back as such."""
    if place.small:
        raise CannotApply("at small scale there is no TF32")
    case = cases.gpt2(8) | {"precision": "32-true"}
    place.cases({
        "gpt2_highest": case | {"matmul_precision": "highest"},
        "gpt2_high": case | {"matmul_precision": "high"},
        "gpt2_variable": case | {"env": cases.ALL_TF32},
    })  # fmt: skip
    wanted = "case=gpt2_highest,gpt2_high,gpt2_variable"
    found = by_case(place.sweep("matmul", "experiment=cases", wanted, *window(place), *few(place)))
    rates = {name: record.seen("samples_per_second") for name, record in found.items()}
    read = {name: record.body["effective"]["matmul_precision"] for name, record in found.items()}
    findings.table(
        "GPT-2 in 32 bits", ("case", "samples/s", "read back"), [(name, rates[name], read[name]) for name in rates]
    )
    findings.expect("high is read back", read["gpt2_high"] == "high", read)
    findings.expect("high is faster than highest", rates["gpt2_high"] > 1.1 * rates["gpt2_highest"], rates)
    findings.near("the key and the variable: the rates", rates["gpt2_high"] / rates["gpt2_variable"], 1.0, 0.05)


def few(place: Place) -> tuple[str, ...]:
    """Return the overrides for networks whose steps take so long that the steps' numbers decide, not the seconds."""
    return () if place.small else ("measure.warmup_steps=10", "measure.min_steps=20")


def compiled(place: Place, findings: Findings) -> None:
    """The compiled ResNet-50 is at least as fast as the one that is not."""
    if place.small:
        raise CannotApply(f"at small scale nothing is compiled: a {place.device} device has no use for it, or no code")
    place.cases({"resnet50_bf16_compiled": cases.compiled()})
    found = [one for one in place.records("truth") if one.body["axes"].get("case") == "resnet50_bf16"]
    records = place.sweep("compiled", "experiment=cases", "case=resnet50_bf16_compiled", *window(place), *few(place))
    rates = {
        name: one.seen("samples_per_second")
        for name, one in zip(("compiled", "as it is"), records + found, strict=False)
    }
    findings.table("ResNet-50 (bf16-mixed), compiled or not", ("how", "images/s"), list(rates.items()))
    findings.expect("compiled, it has a rate", rates["compiled"] > 0, rates)
    if found:
        findings.expect("compiled, it is no slower", rates["compiled"] >= rates["as it is"], rates)


def inference(place: Place, findings: Findings) -> None:
    """Both scenarios give answers: single queries have latencies, and all queries at once give the higher rate."""
    case = cases.truth(place.small)["resnet50_bf16"]
    bare = {"task": "inference"}
    place.cases({
        "offline": case | bare,
        "single_stream": case | bare | {"batch_size": 1, "measure": {"scenario": "single_stream"}},
    })  # fmt: skip
    found = by_case(place.sweep("inference", "experiment=cases", "case=offline,single_stream", *window(place)))
    columns = ("scenario", "samples/s", "p50 ms", "p90 ms", "p99 ms")
    findings.table(
        "Inference (ResNet-50, bf16-mixed)", columns, [_latency(name, found[name]) for name in sorted(found)]
    )
    rates = {name: record.seen("samples_per_second") for name, record in found.items()}
    findings.expect("all at hand is faster than one by one", rates["offline"] > rates["single_stream"], rates)
    if place.small:
        findings.note("at small scale there are too few queries for percentiles")
        return
    latency, rate = found["single_stream"].seen("query_seconds_p50"), rates["single_stream"]
    findings.near("one by one, the rate is the inverse of the middle latency", rate * latency, 1.0, 0.2)


def _latency(name: str, record: Record) -> tuple[object, ...]:
    found = (record.metric(f"query_seconds_{percentile}") for percentile in ("p50", "p90", "p99"))
    return (name, record.seen("samples_per_second"), *(value and value * 1e3 for value in found))


def ladder(place: Place, findings: Findings) -> None:
    """Every rung of the ladder is measured, from the naive loop to the compiled one."""
    chosen: tuple[str, ...] = ()
    if place.device == "simulated":
        chosen = (f"rung={','.join(path.stem for path in sorted((ROOT / 'conf/rung').glob('[0-6]*.yaml')))}",)
        findings.note("torch.compile has no code for the simulated device, so its rung is left out")
    records = place.sweep("ladder", "experiment=ladder", *chosen, *window(place, repeats=1))
    rungs = {record.body["axes"]["rung"]: record for record in records}
    rows = [(rung, rungs[rung].outcome, rungs[rung].metric("samples_per_second")) for rung in sorted(rungs)]
    findings.table("Ladder (small CNN on digits)", ("rung", "outcome", "samples/s"), rows)
    failed = [f"{rung}: {record.body['reason']}" for rung, record in rungs.items() if record.outcome != "measured"]
    findings.expect("every rung is measured", not failed, failed or "all")


def quickstart(place: Place, findings: Findings) -> None:
    """The quickstart has a number on both devices and a verdict on whether the GPU pays off."""
    small = (*window(place), "batch_size=32", "precision=32-true") if place.small else ()
    records = place.sweep("quickstart", "experiment=quickstart", f"accelerator={_both(place)}", "devices=1", *small)
    rows = [(str(one.body["axes"]), one.outcome, one.metric("samples_per_second")) for one in records]
    findings.table("Quickstart", ("setting", "outcome", "samples/s"), rows)
    bad = [row for row in rows if row[1] != "measured"]
    findings.expect("every run is measured", not bad, bad or f"{len(rows)} runs")


def _both(place: Place) -> str:
    return "cpu" if place.device == "cpu" else f"cpu,{place.device}"


CHECKS = (
    Check("truth", "networks", 2.5, networks),
    Check("truth", "what the device did meanwhile", 0.1, meanwhile),
    Check("truth", "inference", 0.5, inference),
)
LATER = (
    Check("truth", "precision of matrix products", 1.0, matmul_precision, optional=True),
    Check("truth", "torch.compile", 1.6, compiled, optional=True),
    Check("truth", "ladder", 1.2, ladder, optional=True),
    Check("truth", "quickstart", 2.5, quickstart, optional=True),
)
"""Checks for the time that is left after all others."""

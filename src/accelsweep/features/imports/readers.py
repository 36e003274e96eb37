"""Readers for the benchmark files of timm, Lambda, MLPerf and milabench, and for the imported rows in `external/`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from accelsweep.devices.datasheets import datasheet_of, datasheets
from accelsweep.errors import InputError, nearest
from accelsweep.features.imports.model import ExternalResults, ExternalRow, PublishedTask
from accelsweep.files import read_regular, sha256_file
from accelsweep.json_documents import first_error
from accelsweep.metrics import MLPERF_LOG_MARK
from accelsweep.plain_json import parse_json

MAX_FILE_BYTES = 32 * 2**20
"""Size limit, far larger than any file in the known formats."""


def read_text(path: Path) -> str:
    """Return the text of the file. Raises InputError if it is not UTF-8, plus any error of `read_regular`."""
    try:
        return read_regular(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None


def read_csv(path: Path, required: Collection[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file with these columns. A malformed row raises InputError with its line number."""
    reader = csv.reader(io.StringIO(read_text(path)), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: invalid CSV ({error})") from None
    head = lines[0] if lines else []
    if missing := [name for name in required if name not in head]:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has: {', '.join(head) or 'nothing'}"
        )
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(head):
            raise InputError(f"{path}, line {number}: {len(line)} values for {len(head)} columns")
    return [dict(zip(head, line, strict=True)) for line in lines[1:]]


def parse_rate(text: str, where: str) -> float | None:
    """Parse a number; None for an empty string or 0, both of which mean "not measured" in these files."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {text!r} is not a rate")
    return value or None


def parse_count(text: str, where: str) -> int | None:
    """Parse an integer, which may be written as `256.0`; None for an empty string or 0."""
    value = parse_rate(text, where)
    if value is not None and value != int(value):
        raise InputError(f"{where}: {text!r} is not an integer")
    return None if value is None else int(value)


def board_of(device: str) -> str | None:
    """Return the datasheet key for the source's device name; None if the name is ambiguous or unknown."""
    for name in (device, f"GeForce {device}"):
        if (sheet := datasheet_of(name)) is not None:
            return sheet.key
    key = device.lower().replace(" ", "")
    return next((known for known in (key, f"rtx{key}") if known in datasheets()), None)


# timm: rates of image models, in files such as `benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv`.

_TIMM_NAME = re.compile(
    r"benchmark-(?P<task>infer|train)-(?P<precision>[a-z0-9_]+)-(?P<layout>nchw|nhwc)-pt(?P<torch>\d{3})-"
    r"(?:cu\d+|cpu)-(?P<device>[A-Za-z0-9_]+?)(?P<compiled>-dynamo)?\.csv"
)

_TIMM_DEVICES = {"pro6000maxq": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"}
"""Devices whose name in timm's file names cannot be matched to a datasheet."""


def timm_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return the rows of a timm file; `device` replaces the device in the file's name."""
    match = _TIMM_NAME.fullmatch(path.name)
    if match is None:
        raise InputError(
            f"{path.name} is not a timm file name, such as benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv; "
            "precision and device are read from the name, so do not rename the file"
        )
    columns = [f"{match['task']}_{name}" for name in ("samples_per_sec", "batch_size", "img_size")]
    task: PublishedTask = "training" if match["task"] == "train" else "inference"
    name, digits = device or _TIMM_DEVICES.get(match["device"], match["device"]), match["torch"]
    # `112` is 1.12 and `240` is 2.4.0: minor versions of torch 2 have one digit.
    version = f"1.{digits[1:]}" if digits[0] == "1" else ".".join(digits)
    conditions = {"layout": match["layout"], "torch": version} | ({"compiled": "yes"} if match["compiled"] else {})
    rows = []
    for line, row in enumerate(read_csv(path, ["model", *columns]), 2):
        where = f"{path}, line {line}"
        rate, batch, pixels = (row[column] for column in columns)
        if (value := parse_rate(rate, where)) is None:
            continue
        rows.append(
            ExternalRow(
                model=row["model"],
                task=task,
                value=value,
                unit="1/s",
                device=name,
                board=board_of(name),
                devices=1,
                precision=match["precision"],
                batch_size=parse_count(batch, where),
                image_size=parse_count(pixels, where),
                conditions=conditions,
            )
        )
    return rows


# Lambda, `deeplearning-benchmark`: training rates in `pytorch-train-throughput-[v2-]PRECISION.csv`.

LAMBDA_UNITS = {
    "ssd": "1/s",
    "bert_base_squad": "1/s",
    "bert_large_squad": "1/s",
    "gnmt": "tokens/s",
    "ncf": "1/s",
    "resnet50": "1/s",
    "tacotron2": "mel frames/s",
    "transformerxlbase": "tokens/s",
    "transformerxllarge": "tokens/s",
    "waveglow": "audio samples/s",
}
"""The models in Lambda's tables, with their units."""

_LAMBDA_SYSTEM = re.compile(
    r"(?:.*_)?(?P<devices>\d{1,6})x(?P<gpu>[A-Z]+\d+)_(?P<size>\d+GB)(?:_(?P<form>SXM\d?|PCIe))?_.*"
)

_LAMBDA_PREFIX = re.compile(r"^(?:(?:LambdaCloud|1CC|Dell\w*|SMC|RAIDZ1) )?(?:\d+ ?x ?)?")
"""Vendor and GPU count that precede the GPU in a system name."""

_LAMBDA_BOARDS = {
    "H100 80GB SXM5": "h100-sxm",
    "H100 80GB PCIe": "h100-pcie",
    "H100 80GB PCIe Gen5": "h100-pcie",
    "H200 140GB SXM": "h200",
    "GH200 96GB": "gh200",
    "B200 192GB": "b200",
    "RTX 6000 Ada": "rtx-6000-ada",
    "A100 40GB PCIe": "a100-40-pcie",
}
"""Lambda's names for boards that the driver names differently."""


def lambda_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return the rows of one of Lambda's tables; `device` replaces the device names in it."""
    precision = re.fullmatch(r".*(fp16|fp32)\.csv", path.name)
    if precision is None:
        raise InputError(
            f"{path.name} does not end in fp16.csv or fp32.csv, which specifies the precision: restore its name"
        )
    rows = []
    for line, row in enumerate(read_csv(path, ["resnet50"]), 2):
        where = f"{path}, line {line}"
        name, devices, system = _lambda_hardware(row, where)
        for model, unit in LAMBDA_UNITS.items():
            if (value := parse_rate(row.get(model, ""), f"{where}, {model}")) is not None:
                rows.append(
                    ExternalRow(
                        model=model,
                        task="training",
                        value=value,
                        unit=unit,
                        device=device or name,
                        board=board_of(device) if device else _LAMBDA_BOARDS.get(name) or board_of(name),
                        devices=devices,
                        precision=precision[1],
                        conditions={"system": system},
                    )
                )
    return rows


def _lambda_hardware(row: dict[str, str], where: str) -> tuple[str, int | None, str]:
    """Return the GPU, the number of GPUs and Lambda's name for the system."""
    if "name_gpu" in row:
        system = row["name_gpu"]
        return _LAMBDA_PREFIX.sub("", system), parse_count(row.get("num_gpu", ""), where), system
    system = row.get("", "")
    match = _LAMBDA_SYSTEM.fullmatch(system)
    if match is None:
        raise InputError(f"{where}: {system!r} is not a Lambda system, such as LambdaOD_1xH100_80GB_SXM5_v2")
    return " ".join(part for part in match.group("gpu", "size", "form") if part), int(match["devices"]), system


# MLPerf Training: the time to target of one run, from its log (`result_0.txt`): `:::MLLOG {...}` lines among other
# output.

_MAX_TIME_MS = 1e15
"""Maximum timestamp in milliseconds since 1970: about thirty thousand years."""


def mlperf_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return one row, with the time from `run_start` to `run_stop` in seconds. Rejects a run that missed its target."""
    events: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if MLPERF_LOG_MARK not in line:
            continue
        try:
            event = parse_json(line.partition(MLPERF_LOG_MARK)[2])
        except ValueError as error:
            raise InputError(f"{path}, line {number}: invalid JSON ({error})") from None
        if not isinstance(event, dict):
            raise InputError(f"{path}, line {number}: not an event")
        events[str(event.get("key"))] = event
    if missing := [key for key in ("submission_benchmark", "run_start", "run_stop") if key not in events]:
        raise InputError(f"{path} has no {' and no '.join(missing)}: it is not the log of a complete MLPerf training")
    metadata = events["run_stop"].get("metadata")
    if (status := metadata.get("status") if isinstance(metadata, dict) else None) != "success":
        raise InputError(f"{path}: the run ended as {status!r}, so it has no time to target")
    start, stop = events["run_start"].get("time_ms"), events["run_stop"].get("time_ms")
    if not isinstance(start, int | float) or not isinstance(stop, int | float) or not 0 <= start < stop < _MAX_TIME_MS:
        raise InputError(f"{path}: run_start and run_stop have no times, or the times are in the wrong order")
    values = {
        key: events.get(key, {}).get("value")
        for key in ("submission_benchmark", "submission_org", "submission_platform", "global_batch_size")
    }
    if not values["submission_benchmark"]:
        raise InputError(f"{path}: submission_benchmark has no value, so the row has no model")
    platform = str(values["submission_platform"] or "")
    # `1xMI325X` is a device and its count; any other platform name denotes a system of unknown size.
    counted = re.fullmatch(r"(\d{1,6}) ?x ?(.+)", platform)
    name = device or (counted[2] if counted else platform)
    if not name:
        raise InputError(f"{path} does not name its devices; name them with --device")
    facts = {
        "submitted by": values["submission_org"],
        "platform": platform,
        "global batch": values["global_batch_size"],
    }
    return [
        ExternalRow(
            model=str(values["submission_benchmark"]),
            task="training",
            value=float(stop - start) / 1000.0,
            unit="s",
            device=name,
            board=board_of(name),
            devices=int(counted[1]) if counted else None,
            conditions={name: str(value) for name, value in facts.items() if value},
        )
    ]


# milabench: training rates from the JSON summary, which maps benchmarks to results with a `train_rate`.


def milabench_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return a row for each benchmark with a rate: the mean of its readings, over all of its devices together."""
    if not device:
        raise InputError("a milabench summary does not name its devices; name them with --device")
    try:
        summary = parse_json(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: invalid JSON ({error})") from None
    if not isinstance(summary, Mapping) or not all(isinstance(result, Mapping) for result in summary.values()):
        raise InputError(f"{path} is not a milabench summary: it does not map benchmarks to results")
    if not any("train_rate" in result for result in summary.values()):
        raise InputError(f"{path} is not a milabench summary: no benchmark has a train_rate")
    rows = []
    for name, result in summary.items():
        rates = result.get("train_rate")
        mean = rates.get("mean") if isinstance(rates, Mapping) else None
        value = None if mean is None else parse_rate(str(mean), f"{path}, {name}")
        if value is None or not result.get("successes", 1):
            continue
        gpus = result.get("per_gpu") or {}
        if not isinstance(gpus, Mapping):
            raise InputError(f"{path}, {name}: per_gpu does not map devices to readings")
        rows.append(
            ExternalRow(
                model=name,
                task="training",
                value=value,
                unit="1/s",
                device=device,
                board=board_of(device),
                devices=len(gpus) or None,
            )
        )
    return rows


READERS: Mapping[str, Callable[[Path, str | None], list[ExternalRow]]] = {
    "timm": timm_rows,
    "lambda": lambda_rows,
    "mlperf": mlperf_rows,
    "milabench": milabench_rows,
}
"""The readers, keyed by the name of the source that users enter."""

FOLDER = "external"


def external_file(home: Path, name: str) -> Path:
    """Return the path of the imported results `name`."""
    return home / FOLDER / f"{name}.json"


def read_published(path: Path, source: str, device: str | None) -> ExternalResults:
    """Return the rows of a file published by `source`. Raises InputError if the file is damaged or in another format.

    `device` specifies the device if the file does not, or overrides it.
    """
    if source not in READERS:
        raise InputError(f"no source {source!r}{nearest(source, READERS)}; there are: {', '.join(READERS)}")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    try:
        rows = READERS[source](path, device)
        if not rows:
            raise InputError(f"{path} has no row with a rate")
        return ExternalResults(source=source, file=path.name, sha256=sha256_file(path), rows=tuple(rows))
    except ValidationError as error:
        raise InputError(f"{path}: {first_error(error)}") from None


def read_external(home: Path, name: str) -> ExternalResults:
    """Return the imported results `name`. Raises InputError if there are none, DamagedFile if they are damaged."""
    path = external_file(home, name)
    if not path.exists():
        known = sorted(path.stem for path in path.parent.glob("*.json"))
        listing = f"there are: {', '.join(known)}" if known else "there are none"
        remedy = "import some with `accelsweep import FILE --from SOURCE`"
        raise InputError(f"no external rows {name!r}{nearest(name, known)}; {listing}. {remedy}")
    return ExternalResults.read(path)


def read_all_external(home: Path) -> tuple[ExternalResults, ...]:
    """Return all imported results, keyed by file name. Raises DamagedFile, with the file's name, if one is damaged."""
    return tuple(ExternalResults.read(path) for path in sorted((home / FOLDER).glob("*.json")))

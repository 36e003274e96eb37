"""The time to the target of one run, from its log in an MLPerf Training submission: `result_0.txt`.

A log has lines `:::MLLOG {...}` of JSON, with other output between them. Format: MLCommons, mlperf_logging.
"""

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
from accelsweep.json_documents import first_error, parse_json
from accelsweep.records.metrics import MLPERF_LOG_MARK

# The common part of the readers: a file's text, its table, its numbers, and the board behind a device's name.

MOST_TABLE_BYTES = 32 * 2**20
"""No file of the known formats comes near this size."""


def text_of(path: Path) -> str:
    """Return the text of the file; raise InputError if it is no text in UTF-8, and as `read_regular` does."""
    try:
        return read_regular(path, MOST_TABLE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason} at byte {error.start})") from None


def table_of(path: Path, required: Collection[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file that has these columns. Raise InputError with the line where it breaks."""
    reader = csv.reader(io.StringIO(text_of(path)), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: it is no CSV ({error})") from None
    head = lines[0] if lines else []
    if missing := [name for name in required if name not in head]:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has: {', '.join(head) or 'nothing'}"
        )
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(head):
            raise InputError(f"{path}, line {number}: it has {len(line)} values for {len(head)} columns")
    return [dict(zip(head, line, strict=True)) for line in lines[1:]]


def number_of(text: str, where: str) -> float | None:
    """Return the number; None for an empty text or 0, with which these files say that nothing was measured."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {text!r} is no rate")
    return value or None


def whole_of(text: str, where: str) -> int | None:
    """Return the whole number, which may be written as `256.0`; None for an empty text or 0."""
    value = number_of(text, where)
    if value is not None and value != int(value):
        raise InputError(f"{where}: {text!r} is no whole number")
    return None if value is None else int(value)


def board_of(device: str) -> str | None:
    """Return the key of the datasheet of the device that a source calls so, or None where that is not sure."""
    for name in (device, f"GeForce {device}"):
        if (sheet := datasheet_of(name)) is not None:
            return sheet.key
    key = device.lower().replace(" ", "")
    return next((known for known in (key, f"rtx{key}") if known in datasheets()), None)


_MOST_MS = 1e15
"""Milliseconds since 1970: thirty thousand years."""


def mlperf_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return one row: seconds from `run_start` to `run_stop`. A run that missed its target is refused."""
    events = {str(event.get("key")): event for event in _events(path)}
    if missing := [key for key in ("submission_benchmark", "run_start", "run_stop") if key not in events]:
        raise InputError(f"{path} has no {' and no '.join(missing)}: it is no log of a whole MLPerf training run")
    status = _metadata(events["run_stop"]).get("status")
    if status != "success":
        raise InputError(f"{path}: the run ended as {status!r}, so it has no time to its target")
    model = events["submission_benchmark"].get("value")
    if not model:
        raise InputError(f"{path}: submission_benchmark has no value, so the row has no model")
    platform = str(events.get("submission_platform", {}).get("value") or "")
    named, devices = _hardware(platform)
    named = device or named
    if not named:
        raise InputError(f"{path} does not tell its devices; name them with --device")
    org = events.get("submission_org", {}).get("value")
    batch = events.get("global_batch_size", {}).get("value")
    facts = {"submitted by": org, "platform": platform, "global batch": batch}
    return [
        ExternalRow(
            model=str(model),
            task="training",
            value=_seconds(events["run_start"], events["run_stop"], path),
            unit="s",
            device=named,
            board=board_of(named),
            devices=devices,
            conditions={name: str(value) for name, value in facts.items() if value},
        )
    ]


def _events(path: Path) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if MLPERF_LOG_MARK not in line:
            continue
        try:
            event = parse_json(line.partition(MLPERF_LOG_MARK)[2])
        except ValueError as error:
            raise InputError(f"{path}, line {number}: it is no JSON ({error})") from None
        if not isinstance(event, dict):
            raise InputError(f"{path}, line {number}: it is no event")
        found.append(event)
    return found


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("metadata")
    return found if isinstance(found, dict) else {}


def _seconds(start: dict[str, Any], stop: dict[str, Any], path: Path) -> float:
    first, last = start.get("time_ms"), stop.get("time_ms")
    if not isinstance(first, int | float) or not isinstance(last, int | float) or not 0 <= first < last < _MOST_MS:
        raise InputError(f"{path}: run_start and run_stop have no times, or in the wrong order")
    return float(last - first) / 1000.0


def _hardware(platform: str) -> tuple[str, int | None]:
    """Return device and number of a platform such as `1xMI325X`; others name a system, whose number is not known."""
    found = re.fullmatch(r"(\d{1,6}) ?x ?(.+)", platform)
    return (found[2], int(found[1])) if found else (platform, None)


# Training rates that Lambda publishes in `deeplearning-benchmark`: `pytorch-train-throughput-[v2-]PRECISION.csv`.

UNITS = {
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
"""The models that Lambda's table has, and the unit of each."""

_PRECISION = re.compile(r".*(fp16|fp32)\.csv")

_SYSTEM = re.compile(r"(?:.*_)?(?P<devices>\d{1,6})x(?P<gpu>[A-Z]+\d+)_(?P<size>\d+GB)(?:_(?P<form>SXM\d?|PCIe))?_.*")

_BEFORE = re.compile(r"^(?:(?:LambdaCloud|1CC|Dell\w*|SMC|RAIDZ1) )?(?:\d+ ?x ?)?")
"""The words before the GPU in a system's name: whose machine it is, and how many GPUs it has."""

_BOARDS = {
    "H100 80GB SXM5": "h100-sxm",
    "H100 80GB PCIe": "h100-pcie",
    "H100 80GB PCIe Gen5": "h100-pcie",
    "H200 140GB SXM": "h200",
    "GH200 96GB": "gh200",
    "B200 192GB": "b200",
    "RTX 6000 Ada": "rtx-6000-ada",
    "A100 40GB PCIe": "a100-40-pcie",
}
"""Lambda's names for boards that are not the driver's."""


def lambda_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return the rows of a table of Lambda's; `device` replaces the names of the devices in it."""
    precision = _PRECISION.fullmatch(path.name)
    if precision is None:
        raise InputError(f"{path.name} does not end in fp16.csv or fp32.csv, which tells the precision: keep its name")
    rows = []
    for line, row in enumerate(table_of(path, ["resnet50"]), 2):
        where = f"{path}, line {line}"
        named, devices, system = _lambda_hardware(row, where)
        for model, unit in UNITS.items():
            value = number_of(row.get(model, ""), f"{where}, {model}")
            if value is not None:
                rows.append(
                    ExternalRow(
                        model=model,
                        task="training",
                        value=value,
                        unit=unit,
                        device=device or named,
                        board=board_of(device) if device else _BOARDS.get(named) or board_of(named),
                        devices=devices,
                        precision=precision[1],
                        conditions={"system": system},
                    )
                )
    return rows


def _lambda_hardware(row: dict[str, str], where: str) -> tuple[str, int | None, str]:
    """Return the GPU, how many of them, and the name that Lambda gives to the system."""
    if "name_gpu" in row:
        system = row["name_gpu"]
        return _BEFORE.sub("", system), whole_of(row.get("num_gpu", ""), where), system
    system = row.get("", "")
    found = _SYSTEM.fullmatch(system)
    if found is None:
        raise InputError(f"{where}: {system!r} is no system of Lambda's, such as LambdaOD_1xH100_80GB_SXM5_v2")
    parts = (found["gpu"], found["size"], found["form"])
    return " ".join(part for part in parts if part), int(found["devices"]), system


# Training rates from the summary that milabench writes as JSON: a mapping of benchmarks with their `train_rate`.


def milabench_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return a row for each benchmark with a rate: the mean over its readings, on all of its devices together."""
    if not device:
        raise InputError("a summary of milabench's does not tell its devices; name them with --device")
    try:
        summary = parse_json(text_of(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error})") from None
    if not isinstance(summary, Mapping) or not all(isinstance(one, Mapping) for one in summary.values()):
        raise InputError(f"{path} is no summary of milabench's: it maps no benchmarks to their results")
    if not any("train_rate" in one for one in summary.values()):
        raise InputError(f"{path} is no summary of milabench's: no benchmark has a train_rate")
    rows = [_row(name, one, device, path) for name, one in summary.items() if one.get("train_rate")]
    return [row for row in rows if row is not None]


def _row(name: str, one: Mapping[str, Any], device: str, path: Path) -> ExternalRow | None:
    rates = one["train_rate"]
    mean = rates.get("mean") if isinstance(rates, Mapping) else None
    value = number_of("" if mean is None else str(mean), f"{path}, {name}")
    if value is None or not one.get("successes", 1):
        return None
    boards = one.get("per_gpu") or {}
    if not isinstance(boards, Mapping):
        raise InputError(f"{path}, {name}: per_gpu maps no devices to their readings")
    return ExternalRow(
        model=name,
        task="training",
        value=value,
        unit="1/s",
        device=device,
        board=board_of(device),
        devices=len(boards) or None,
    )


# Rates of image models that timm publishes, in files such as `benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv`.

_NAME = re.compile(
    r"benchmark-(?P<task>infer|train)-(?P<precision>[a-z0-9_]+)-(?P<layout>nchw|nhwc)-pt(?P<torch>\d{3})-"
    r"(?:cu\d+|cpu)-(?P<device>[A-Za-z0-9_]+?)(?P<compiled>-dynamo)?\.csv"
)

_NAMES = {"pro6000maxq": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"}
"""Devices whose names in timm's files are no names of theirs."""


def timm_rows(path: Path, device: str | None) -> list[ExternalRow]:
    """Return the rows of a file of timm's; `device` replaces the name of the device in the file's name."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise InputError(
            f"{path.name} is no name of timm's, such as benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv; "
            "it tells precision and device, so keep it"
        )
    prefix = found["task"]
    columns = [f"{prefix}_{name}" for name in ("samples_per_sec", "batch_size", "img_size")]
    task: PublishedTask = "training" if prefix == "train" else "inference"
    named = device or _NAMES.get(found["device"], found["device"])
    conditions = {"layout": found["layout"], "torch": _version(found["torch"])}
    if found["compiled"]:
        conditions["compiled"] = "yes"
    rows = []
    for line, row in enumerate(table_of(path, ["model", *columns]), 2):
        where = f"{path}, line {line}"
        rate, batch, pixels = (row[name] for name in columns)
        if (value := number_of(rate, where)) is None:
            continue
        rows.append(
            ExternalRow(
                model=row["model"],
                task=task,
                value=value,
                unit="1/s",
                device=named,
                board=board_of(named),
                devices=1,
                precision=found["precision"],
                batch_size=whole_of(batch, where),
                image_size=whole_of(pixels, where),
                conditions=conditions,
            )
        )
    return rows


def _version(digits: str) -> str:
    """Return `2.4.0` for 240, and `1.12` for 112: a second version's minor has one digit, a first's had two."""
    return f"1.{digits[1:]}" if digits[0] == "1" else ".".join(digits)


# `external/NAME.json` in the user's folder: read a published file, keep its rows, and find them again by name.

READERS: Mapping[str, Callable[[Path, str | None], list[ExternalRow]]] = {
    "timm": timm_rows,
    "lambda": lambda_rows,
    "mlperf": mlperf_rows,
    "milabench": milabench_rows,
}
"""The sources whose files can be read, by the word that users write."""

FOLDER = "external"


def external_file(home: Path, name: str) -> Path:
    """Return the place of the rows called `name`."""
    return home / FOLDER / f"{name}.json"


def read_published(path: Path, source: str, device: str | None) -> ExternalResults:
    """Return the rows of a file that `source` publishes. Raise InputError for a damaged or a foreign one.

    `device` names the device where the file does not, or does so otherwise than the user would.
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


def kept(home: Path, name: str) -> ExternalResults:
    """Return the rows called `name`; raise InputError if there are none, DamagedFile if their file is damaged."""
    place = external_file(home, name)
    if not place.exists():
        known = sorted(path.stem for path in place.parent.glob("*.json"))
        there = f"there are: {', '.join(known)}" if known else "there are none"
        remedy = "`accelsweep import FILE --from SOURCE` adds some"
        raise InputError(f"no external rows {name!r}{nearest(name, known)}; {there}. {remedy}")
    return ExternalResults.read(place)


def all_kept(home: Path) -> tuple[ExternalResults, ...]:
    """Return all rows of the folder, by the names of their files; raise DamagedFile that names a damaged one."""
    return tuple(ExternalResults.read(path) for path in sorted((home / FOLDER).glob("*.json")))

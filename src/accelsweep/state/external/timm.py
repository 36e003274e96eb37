"""Rates of image models that timm publishes, in files such as `benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv`.

The name of the file tells what its rows do not, so it has to be kept. Format: R. Wightman, pytorch-image-models.
"""

from __future__ import annotations

import re
from pathlib import Path

from accelsweep.core.recorded.external import ExternalRow, PublishedTask
from accelsweep.errors import InputError
from accelsweep.state.external.cells import board_of, number_of, table_of, whole_of

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

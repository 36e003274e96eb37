"""Training rates that Lambda publishes in `deeplearning-benchmark`: `pytorch-train-throughput-[v2-]PRECISION.csv`.

There are two forms. The first has a column for the GPU and for their number; the second tells both in a system's name.
"""

from __future__ import annotations

import re
from pathlib import Path

from accelsweep.core.recorded.external import ExternalRow
from accelsweep.errors import InputError
from accelsweep.state.external.cells import board_of, number_of, table_of, whole_of

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
        named, devices, system = _hardware(row, where)
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


def _hardware(row: dict[str, str], where: str) -> tuple[str, int | None, str]:
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

"""Imports torch and Lightning in the project's interpreter, and lists the devices that its torch can use.

`main` prints one line of JSON: the devices by kind, or the error that an import raised and the package that caused it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

_IN_PACKAGE = re.compile(r".*-packages/(\w+)")


def main() -> None:
    """Check torch, and the Lightning package named on the command line if there is one."""
    *_, package = sys.argv
    module = "torch"
    gc.disable()  # looking for garbage takes a sixth of the time of the imports, and finds none
    try:
        importlib.import_module(module)
        if package:
            module = "lightning.pytorch" if package == "lightning" else package
            importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  a broken library may raise anything
        _answer({"module": module, "error": f"{type(error).__name__}: {error}", "cause": _cause(error)})
    _answer({"devices": dict(_devices())})


def _answer(answer: dict[str, Any]) -> NoReturn:
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking down all modules of torch and Lightning would take as long as a third of their imports


def _cause(error: Exception) -> str:
    """Return the last package that the import reached; `torch` if it reached no other."""
    frames = traceback.extract_tb(error.__traceback__)
    packages = [found[1] for frame in frames if (found := _IN_PACKAGE.match(frame.filename))]
    return next((name for name in reversed(packages) if name not in ("accelsweep", "torch")), "torch")


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    from accelsweep.devices.kinds import KINDS

    for accelerator, kind in KINDS.items():
        if kind.unavailable_reason() is None:
            count = 1 if kind.max_per_machine == 1 else kind.module.device_count()
            yield accelerator, f"{count} x {kind.model_name(torch.device(accelerator, 0))}"

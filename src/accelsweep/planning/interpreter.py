"""Asks another environment's interpreter for its version and its installed packages."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from accelsweep.errors import InputError

_INTERPRETER_TIMEOUT_SECONDS = 120.0

_QUERY = """
import importlib.metadata as m, json, sys
packages = {(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in m.distributions()}
print(json.dumps([sys.version, {name: str(version) for name, version in packages.items()}]))
"""


def query_interpreter(python: Path, where: str) -> tuple[str, dict[str, str]]:
    """Return the interpreter's `sys.version`, and the versions of its installed packages.

    Raises InputError if it does not run; the message begins with `where`, which says where the interpreter was named.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            [str(python), "-c", _QUERY],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_INTERPRETER_TIMEOUT_SECONDS,
        )
        answer: Any = json.loads(done.stdout)
        return answer[0], answer[1]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        message = " ".join(str(getattr(error, "stderr", None) or error).split())
        raise InputError(
            f"{where}: {python} cannot list its packages ({message}); specify the path of an environment's "
            "interpreter, such as .venv/bin/python"
        ) from None

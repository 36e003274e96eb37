"""Environments as versions: another Python with its own packages, which runs are started with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import InputError
from accelsweep.installation import __version__
from accelsweep.json_documents import canonical_json, sha256_text
from accelsweep.measure.machine_state import PACKAGES

_PATIENCE_SECONDS = 120.0


class _Told(TypedDict):
    """An interpreter's account of itself."""

    python: str
    packages: list[tuple[str, str]]


_ASK = """
import importlib.metadata as m, json, sys
found = sorted({(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in m.distributions()}.items())
print(json.dumps({"python": sys.version, "packages": found}))
"""


def environments(home: Path, names: Sequence[str]) -> tuple[Tree, ...]:
    """Return what the Pythons at these paths have installed, each as a version.

    Raises InputError for fewer than two, for one that cannot measure, and for two that have the same packages.
    """
    if len(names) < 2:
        raise InputError("--python names an environment, and two or more are needed to compare them: give it twice")
    found = tuple(_environment(home, name) for name in names)
    for number, tree in enumerate(found):
        twin = next((one for one in found[:number] if one.version.digest == tree.version.digest), None)
        if twin is not None:
            raise InputError(
                f"--python {twin.version.name} and {tree.version.name} have the same Python and packages, so there is "
                "nothing to compare"
            )
    return found


def _environment(home: Path, name: str) -> Tree:
    python = (home / Path(name).expanduser()).absolute()  # not resolved: a link tells a venv from its base
    told = _asked(python, name)
    packages = {str(package): str(version) for package, version in told["packages"]}
    ours = packages.get("accelsweep")
    missing = [package for package in ("accelsweep", *PACKAGES) if package not in packages]
    if missing or ours != __version__:
        lacks = f"lacks {' and '.join(missing)}" if missing else f"has accelsweep {ours}"
        raise InputError(
            f"--python {name} {lacks}, and its runs need accelsweep {__version__} with torch and lightning: "
            f"{python} -m pip install accelsweep=={__version__}"
        )
    digest = sha256_text(canonical_json([told["python"], sorted(packages.items())]))
    version = Version(name=name, kind="environment", digest=digest, python=str(python))
    return Tree(version=version, checkout="", place=".", software={"python": told["python"].split()[0], **packages})


def _asked(python: Path, name: str) -> _Told:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_SECONDS,
        )
        found: _Told = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = " ".join(str(getattr(error, "stderr", None) or error).split())
        raise InputError(
            f"--python {name}: {python} did not say what is installed there ({words}); give the path of an "
            "environment's interpreter, such as .venv/bin/python"
        ) from None
    return found

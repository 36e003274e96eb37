"""Environments that share what is installed here and differ in small distributions, or have packages of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from pathlib import Path

import pytest

_INDEX = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"

_TORCH_FOR_CPUS = "https://download.pytorch.org/whl/cpu"
"""Builds a tenth of the size of those in the general index."""


def environment(folder: Path, extra: str | None, *, shares: bool = True, **modules: tuple[str, str]) -> str:
    """Make an environment at `folder` with the distribution `extra` 1.0; return its interpreter's path.

    `modules` are further distributions, each with its version and the source of its only module.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    if shares:
        (site / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    versions = {name: version for name, (version, _) in modules.items()} | ({} if extra is None else {extra: "1.0"})
    for name, version in versions.items():
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    for name, (_, source) in modules.items():
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(source)
    return str(folder / "bin" / "python")


def installed_environment(folder: Path, *requirements: str, python: str = sys.executable) -> str:
    """Make an environment at `folder` with these packages from the index; return its interpreter's path.

    Skips the test if there is no index.
    """
    if reason := _unreachable(f"{_INDEX}/torch/"):
        pytest.skip(f"no package index: {reason}")
    variables = dict(os.environ)
    if _unreachable(f"{_TORCH_FOR_CPUS}/torch/") is None:
        variables |= {"UV_INDEX": _TORCH_FOR_CPUS, "PIP_EXTRA_INDEX_URL": _TORCH_FOR_CPUS}
    if links := os.environ.get("PIP_FIND_LINKS"):
        variables["UV_FIND_LINKS"] = links
    variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    made = str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        create, install = [uv, "venv", "--quiet", "--python", python, str(folder)], [uv, "pip", "install", "--quiet"]
        install += ["--python", made]
    else:
        create, install = [python, "-m", "venv", str(folder)], [made, "-m", "pip", "install", "--quiet"]
    for command in (create, [*install, *requirements]):
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return made


def _unreachable(url: str) -> str | None:
    try:
        urllib.request.urlopen(url, timeout=20).close()
    except OSError as error:
        return f"{url}: {error}"
    return None


def oldest_python() -> str:
    """The interpreter of the oldest Python that runs need, if it is installed; else this one."""
    named = shutil.which("python3.10")
    candidates = [*([named] if named else []), *map(str, Path.home().glob(".pyenv/versions/3.10.*/bin/python"))]
    for each in candidates:
        if subprocess.run([each, "--version"], capture_output=True, check=False).returncode == 0:
            return each
    return sys.executable

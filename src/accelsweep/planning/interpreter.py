"""Asks another environment's interpreter for its packages, and whether runs can be measured in it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from accelsweep.errors import InputError
from accelsweep.fork_client import Fork, ForkedModule, project_server, request_fork
from accelsweep.installation import foreign_command, python_path, worker_folder
from accelsweep.ipc import receive

_TIMEOUT_SECONDS = 600.0
"""torch may be imported from a slow disk."""

_QUERY = """
import importlib.metadata as m, importlib.util, json, pathlib, sys
packages = {(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in m.distributions()}
torch = importlib.util.find_spec("torch")
path = pathlib.Path(torch.origin).parent / "version.py" if torch and torch.origin else None
text = path.read_text() if path and path.is_file() else ""
print(json.dumps([sys.version, {name: str(version) for name, version in packages.items()}, text]))
"""

_LEAST = {"python": "3.10", "torch": "2.1", "lightning": "2.0", "pytorch-lightning": "2.0"}
"""The oldest versions with which runs are measured."""

_OTHERWISE = "or name another interpreter under `python` in accelsweep.yaml"


def query_interpreter(python: Path, where: str) -> tuple[str, dict[str, str]]:
    """Return the interpreter's `sys.version`, and the versions of its installed packages, torch's with its build.

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
            timeout=_TIMEOUT_SECONDS,
        )
        version, packages, torch = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        message = " ".join(str(getattr(error, "stderr", None) or error).split())
        raise InputError(
            f"{where}: {python} cannot list its packages ({message}); specify the path of an environment's "
            "interpreter, such as .venv/bin/python"
        ) from None
    if "torch" in packages and (build := re.search(r"^__version__ = ['\"]([^'\"]+)", torch, re.MULTILINE)):
        packages["torch"] = build[1]
    return version, packages


def refuse_unsuitable(python: str, software: Mapping[str, str], lightning: str | None) -> None:
    """Raise InputError if an environment lacks torch or the distribution `lightning`, or if anything is too old.

    `software` contains the versions of `python` and of the installed packages.
    """
    for package in filter(None, ("python", "torch", lightning)):
        found, least = software.get(package), _LEAST[package]
        if found is None:
            raise InputError(f"the project's interpreter {python} has no {package}: install it there, {_OTHERWISE}")
        if _is_older(found, least):
            name = "Python" if package == "python" else package
            remedy = _OTHERWISE.removeprefix("or ") if package == "python" else f"update it there, {_OTHERWISE}"
            raise InputError(
                f"the project's interpreter {python} has {name} {found}, but measuring requires {least} or later: "
                f"{remedy}"
            )


def _is_older(found: str, least: str) -> bool:
    try:
        return Version(found).release < Version(least).release
    except InvalidVersion:
        return False


_CHECK: ForkedModule = "accelsweep.worker.environment_check"


def _devices_in_fork(python: str, package: str | None) -> Mapping[str, str] | None:
    """Return torch's devices by kind from a fork of the command's server; None if there is no server or answer."""
    if (server := project_server(python, package)) is None:
        return None
    with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
        streams = nothing.fileno(), output.fileno(), output.fileno()
        fork = request_fork(_CHECK, [package or ""], server=server, streams=streams)
        if not isinstance(fork, Fork):
            return None
        with fork.connection:
            receive(fork.connection)  # it has ended
        output.seek(0)
        *_, last = output.read().decode("utf-8", "replace").splitlines() or [""]
    with contextlib.suppress(ValueError, KeyError):
        return dict(json.loads(last)["devices"])
    return None


@cache
def usable_devices(python: str, package: str | None) -> Mapping[str, str]:
    """Import torch in the project's environment, and the Lightning `package` if any; return torch's devices by kind.

    The command's fork server for that environment is asked first, because it has imported them. Raises InputError if an
    import fails.
    """
    if (devices := _devices_in_fork(python, package)) is not None:
        return devices
    where, packages = f"the project's interpreter {python}", "torch" if package is None else f"torch and {package}"
    with tempfile.TemporaryDirectory(prefix="accelsweep-") as temporary:
        try:
            command = [*foreign_command(python, _CHECK), package or ""]
            done = _output(command, project_environment(str(worker_folder(Path(temporary)))))
        except (OSError, subprocess.SubprocessError) as failure:
            raise InputError(f"{where} cannot import {packages}: {failure}; {_OTHERWISE}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        ending = f"it was ended by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else last
        raise InputError(
            f"{where} cannot import {packages}: {ending}: reinstall torch there for this machine "
            f"({platform.machine()}), {_OTHERWISE}"
        )
    answer: Any = json.loads(done.stdout.strip().splitlines()[-1])
    if "error" in answer:
        error, cause = " ".join(answer["error"].split()), answer["cause"]
        remedy = f"reinstall torch there for this machine ({platform.machine()})"
        if cause != "torch":
            remedy = f"install a version of {cause} there that fits the installed torch"
        raise InputError(f"{where} cannot import {answer['module']} ({error}): {remedy}, {_OTHERWISE}")
    return dict(answer["devices"])


_PRINTED_OPTION = re.compile(r"^[ │]+(?:-\w[^-\n]*)?--([A-Za-z][\w-]*)(.*?)(?=^[ │]+-|\Z)", re.MULTILINE | re.DOTALL)
_PRINTED_DEFAULT = re.compile(r"[(\[]default: ([^)\]]*)[)\]]")


def printed_options(python: str, command: Sequence[str], home: Path) -> dict[str, Any]:
    """Return the long options that a script shows for `--help`, with their literal defaults, else None.

    Raises InputError if the script shows none.
    """
    words = [python, *command, "--help"]
    try:
        done = _output(words, {**project_environment(), "COLUMNS": "200"}, home)
    except (OSError, subprocess.SubprocessError) as failure:
        raise InputError(f"{shlex.join(words)} does not show the script's options: {failure}") from None
    options: dict[str, Any] = {}
    for name, rest in _PRINTED_OPTION.findall(done.stdout):
        default = _PRINTED_DEFAULT.search(rest)
        options[name] = _literal(" ".join(default[1].split())) if default else None
    if not options:
        last = (done.stderr.strip().splitlines() or ["it printed no options"])[-1]
        raise InputError(f"{shlex.join(words)} does not show the script's options: {last}")
    return options


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _output(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )


def missing_module_remedy(message: str, python: str) -> str:
    """Return what to change if `message` says that a script lacks a module, else an empty string."""
    if "ModuleNotFoundError: " not in message:
        return ""
    return f": install it in {python}, {_OTHERWISE}; if it is part of the project, add its folder to PYTHONPATH"


def project_environment(*folders: str) -> Mapping[str, str]:
    """Return the environment for a process in the project's interpreter.

    The `folders`, one of which contains accelsweep's worker, are searched first for imports.
    """
    return {**os.environ, "PYTHONPATH": python_path(*folders), "HYDRA_FULL_ERROR": "1"}

"""Installs requirements into the virtual environment whose Python runs this, as in `python install.py -e .`, with uv.

uv downloads and unpacks packages in parallel. It does not read pip's settings, which may name a mirror or a proxy
without which nothing can be installed, so they are passed on. If uv cannot install, or with INSTALLER=pip, pip does.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = str(Path(__file__).with_name("constraints.txt"))

UV_OPTIONS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraint",
}
"""pip's setting, which may have several values -> the option of uv with the same meaning."""

UV_VARIABLES = {"cert": "SSL_CERT_FILE", "proxy": "ALL_PROXY"}
"""pip's setting -> the environment variable from which uv reads it."""


def pip(*arguments: str) -> list[str]:
    """Return a command of this environment's pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def pip_settings() -> dict[str, str]:
    """Return the settings of `pip install`. As in pip, environment variables take precedence over files."""
    listed = subprocess.run(pip("config", "list"), check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        place, _, value = line.partition("=")
        section, _, key = place.partition(".")
        if section in found and value:
            found[section][key] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def uv_options(settings: dict[str, str]) -> list[str]:
    """Return the options with which uv looks for packages where pip would."""
    options = ["--index-strategy", "unsafe-best-match"]  # as in pip, the newest version of all indexes
    for key, option in UV_OPTIONS.items():
        for value in settings.get(key, "").split():
            options += [option, value]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options


def install_with_uv(requirements: list[str]) -> bool:
    """Install `requirements` with uv, which is installed first; return whether that worked."""
    if subprocess.run(pip("install", "--quiet", "--constraint", CONSTRAINTS, "uv"), check=False).returncode:
        return False
    settings = pip_settings()
    variables = {variable: settings[key] for key, variable in UV_VARIABLES.items() if key in settings}
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    command = [*uv, "--constraint", CONSTRAINTS, *uv_options(settings), *requirements]
    return subprocess.run(command, check=False, env=variables | os.environ).returncode == 0


def main(requirements: list[str]) -> int:
    """Install `requirements`, written as for pip, with the versions in constraints.txt; return an exit status."""
    if os.environ.get("INSTALLER") != "pip":
        if install_with_uv(requirements):
            return 0
        print("uv could not install this (see above); trying pip, which takes longer", file=sys.stderr)
    # Python compiles each module when it is first imported: most of those in the packages never are.
    environment = os.environ | {"PIP_CONSTRAINT": CONSTRAINTS}
    command = pip("install", "--quiet", "--no-compile", *requirements)
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

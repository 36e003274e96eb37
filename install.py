"""Install requirements into the virtual environment whose Python runs this, as in `python install.py -e .`, with uv.

uv downloads and unpacks packages in parallel. It does not read pip's settings, which may name a mirror without which
nothing can be installed, so this passes on the places where pip looks for packages. Where uv cannot install, or with
INSTALLER=pip, pip does.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

UV = "uv==0.13.9"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def pip(*arguments: str) -> list[str]:
    """A command of this environment's pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def pip_settings() -> dict[str, str]:
    """What pip's files and variables set for `pip install`; variables win over files, as they do in pip."""
    listed = subprocess.run(pip("config", "list"), check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        place, _, value = line.partition("=")
        section, _, key = place.partition(".")
        if section in found and value:
            found[section][key] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def uv_options(settings: dict[str, str]) -> list[str]:
    """Give options to uv for the package sources in `settings`, and for choosing among several of them as pip does."""
    options = ["--index-strategy", "unsafe-best-match"]
    for key in ("index-url", "extra-index-url", "find-links", "trusted-host", "constraint"):
        option = {"trusted-host": "--allow-insecure-host"}.get(key, f"--{key}")
        for value in settings.get(key, "").split():
            options += [option, value]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options


def with_uv(requirements: list[str]) -> bool:
    """Whether uv installed `requirements`. If not, says why."""
    if subprocess.run(pip("install", "--quiet", UV), check=False).returncode:
        return False
    settings = pip_settings()
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    certificates = {"SSL_CERT_FILE": settings["cert"]} if "cert" in settings else {}
    command = [*uv, "--constraint", str(CONSTRAINTS), *uv_options(settings), *requirements]
    return subprocess.run(command, check=False, env=certificates | os.environ).returncode == 0


def main(requirements: list[str]) -> int:
    """Installs `requirements`, in pip's notation, under the pins of constraints.txt; returns an exit status."""
    if os.environ.get("INSTALLER") != "pip":
        if with_uv(requirements):
            return 0
        print("uv could not install this (see above); trying pip, which takes longer", file=sys.stderr)
    # Modules are compiled when they are first imported: most of those that lie in the packages never are.
    environment = os.environ | {"PIP_CONSTRAINT": str(CONSTRAINTS)}
    command = pip("install", "--quiet", "--no-compile", *requirements)
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

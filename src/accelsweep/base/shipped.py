"""The folder of the parts that are not Python: `conf/`, the `Snakefile`, `workflows/` and `constraints.txt`.

In a checkout they stand at the top level; a wheel carries them inside the package, under `accelsweep/shipped/`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_root() -> Path:
    """Return the folder that holds `conf/`, `Snakefile` and `workflows/`. Raises FileNotFoundError if it is missing."""
    for candidate in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (candidate / "Snakefile").is_file() and (candidate / "conf").is_dir():
            return candidate
    raise FileNotFoundError(f"accelsweep's conf/ and Snakefile are missing beside {_PACKAGE}; install it again")


def config_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of config files: the user's `conf/` in `home` if there is one, then the shipped one."""
    own, shipped = home / "conf", shipped_root() / "conf"
    return (own, shipped) if own.is_dir() and own.resolve() != shipped.resolve() else (shipped,)

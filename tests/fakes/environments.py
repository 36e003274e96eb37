"""Environments that share what is installed here and differ in one small distribution."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path


def environment(folder: Path, extra: str | None, *, shares: bool = True) -> str:
    """Make an environment at `folder` with the distribution `extra` 1.0; return its interpreter's path."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    if shares:
        (site / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    if extra is not None:
        (site / f"{extra}-1.0.dist-info").mkdir()
        (site / f"{extra}-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {extra}\nVersion: 1.0\n"
        )
    return str(folder / "bin" / "python")

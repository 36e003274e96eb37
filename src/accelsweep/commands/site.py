"""`accelsweep site`: draft the file of a cluster, for its user to read and complete."""

from __future__ import annotations

import re
from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.drive.console import say
from accelsweep.engines.slurm.draft import draft


def write_draft(home: Path, name: str, *, from_slurm: bool) -> None:
    """Write `conf/site/NAME.yaml` below `home`. Raises InputError where it is there, or nothing to draft from is named.

    Raises AccelsweepError where Slurm does not answer.
    """
    if not from_slurm:
        raise InputError("say what to draft the site from: accelsweep site NAME --from-slurm")
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
        raise InputError(f"'{name}' is no name of a site: letters, digits, '_' and '-' make one")
    file = home / "conf" / "site" / f"{name}.yaml"
    if file.exists():
        raise InputError(f"{file.relative_to(home)} is there already, and is left alone: choose another name")
    text = draft(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    say(f"{file.relative_to(home)} is a draft: read it and complete it, then try it:")
    say(f"accelsweep plan experiment=quickstart site={name} --profile slurm")

"""Snakemake's profiles: found by name or path, and checked against the site of their jobs."""

from __future__ import annotations

import re
from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.base.extras import executor_missing
from accelsweep.base.shipped import shipped_root
from accelsweep.core.sites.site import Site
from accelsweep.engines.known import engine_of


def find_profile(profile: str) -> Path:
    """Return the folder of a Snakemake profile, by path or by its name in workflows/profiles."""
    shipped = shipped_root() / "workflows" / "profiles"
    for candidate in (Path(profile), shipped / profile):
        if candidate.is_dir() and any(candidate.glob("*.yaml")):
            return candidate.resolve()
    known = ", ".join(sorted(path.name for path in shipped.iterdir() if path.is_dir()))
    raise InputError(f"no Snakemake profile {profile!r}: give a folder with a profile.yaml, or one of: {known}")


def executor_of(profile: Path) -> str:
    """Return the executor of Snakemake that a profile names."""
    files = [profile / name for name in ("profile.yaml", "config.yaml") if (profile / name).is_file()]
    named = re.search(r"^executor:\s*['\"]?([\w-]+)", files[0].read_text("utf-8"), re.MULTILINE) if files else None
    return "local" if named is None else named[1]


def check_profile(profile: Path, site: Site) -> None:
    """Raise InputError where the profile would submit jobs that the site runs itself, or the other way round.

    So it does where Snakemake lacks the profile's executor.
    """
    executor = executor_of(profile)
    check_executor(site, executor)
    if remedy := executor_missing(executor):
        raise InputError(f"the profile {profile.name!r} needs Snakemake's executor '{executor}': {remedy}")


def check_executor(site: Site, executor: str) -> None:
    """Raise InputError where Snakemake's `executor` would run jobs here that the site submits, or the other way round.

    So it does where a profile is one for another engine.
    """
    engine = engine_of(site)
    if engine is not None and executor != engine.executor:
        what = "measure on this machine" if executor == "local" else f"submit through its executor '{executor}'"
        raise InputError(
            f"the site '{site.name}' submits to {engine.name}, but Snakemake would {what}: "
            f"add --profile {engine.profile} (for snakemake itself: --profile workflows/profiles/{engine.profile}), "
            "or choose site=local"
        )
    if engine is None and executor != "local":
        raise InputError(
            f"the site '{site.name}' is this machine, but Snakemake would submit jobs: "
            "add site=NAME, a file in conf/site/ with `scheduler: slurm` (see conf/site/slurm_example.yaml), "
            "or take --profile local"
        )

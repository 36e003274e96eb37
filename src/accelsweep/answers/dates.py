"""The dates of commits, as far as the repository around the working directory knows them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from accelsweep.errors import InputError
from accelsweep.git import GitFailed, git


def commit_dates(home: Path, commits: Iterable[str]) -> dict[str, str]:
    """Return the committer's date, UTC in ISO 8601, of each commit that is known. Without git or a repository: none."""
    found = {}
    for commit in sorted(set(commits)):
        try:
            told = git(home, "show", "--no-patch", "--format=%ct", "--end-of-options", f"{commit}^{{commit}}")
        except GitFailed:
            continue
        except (InputError, OSError):
            return {}
        found[commit] = datetime.fromtimestamp(int(told), UTC).isoformat(timespec="seconds")
    return found

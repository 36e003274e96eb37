"""`accelsweep doctor site=NAME` tells what is wrong with a site before a sweep is submitted there."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slurm]


def checks(home: Any, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the checks by what was looked at, from the site on."""
    ended = home.accelsweep("doctor", "--json", *arguments)
    found = json.loads(ended.stdout)["checks"]
    first = next(number for number, check in enumerate(found) if check["what"].startswith("site "))
    return ended.returncode, {check["what"]: check for check in found[first:]}


@pytest.mark.long  # the next test offers sizes and runs a job; only here every kind of node has one
def test_each_size_of_job_is_offered_to_slurm_and_a_job_tells_of_its_node(home):
    code, found = checks(home, "site=kinds", "--job", "3")
    assert code == 0
    sizes = [check["found"] for what, check in found.items() if what.startswith("job of ")]
    assert [size.rpartition(" on ")[2] for size in sizes] == ["cpu1", "gpu1", "gpu[1-2]", "gpu3"]
    assert len([check for what, check in found.items() if what.startswith("a short job of ")]) == 3
    (folder,) = {check["found"].partition(",")[0] for what, check in found.items() if what.startswith("working dir")}
    assert folder == str(home.path)
    assert not list(home.path.glob("*.log"))


def test_what_slurm_would_refuse_and_what_a_node_lacks_are_told_in_their_own_words(home):
    code, found = checks(home, "site=box", "site.slurm.partition=gpuu", "--job", "1")
    assert code == 1
    assert all("Invalid partition name" in check["found"] for check in list(found.values())[1:])
    assert all("sbatch --test-only --partition=gpuu" in check["remedy"] for check in list(found.values())[1:])
    code, found = checks(home, "site=box", "+site.slurm.scratch=/proc/none", "--job", "1")
    (job,) = (check for what, check in found.items() if what.startswith("a short job"))
    assert code == 1
    assert "mkdir: cannot create directory" in job["found"]
    assert "scratch" in job["remedy"]
    assert home.slurm("squeue", "--noheader") == ""

"""`repeats=auto` measures a pilot and then what its noise asks for, in one command."""

import re

import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,  # cli/test_pilot.py decides and plans what follows; only here one command measures both
]

AUTO = ("run", "experiment=tiny", "repeats=auto", "repeats_most=5")


def test_one_command_goes_on_after_the_pilot_and_the_same_again_measures_nothing(continued):
    """Two blocks are there. Five are the fewest that the rule takes and the most that it may: noise decides nothing."""
    home = continued
    result = home.accelsweep(*AUTO)
    assert result.returncode == 0, result.stdout
    assert re.search(r"repeats=auto: the pilot's noise .* 5 blocks.*; 2 are left", result.stdout), result.stdout
    manifest = Manifest.read(SweepFolder(home.path, "tiny").manifest)
    assert (len(manifest.blocks), manifest.revision, manifest.options.pilot) == (5, 3, False)
    records = home.records("tiny")
    assert len(records) == 10
    again = home.accelsweep(*AUTO)
    assert again.returncode == 0, again.stdout
    assert home.records("tiny") == records

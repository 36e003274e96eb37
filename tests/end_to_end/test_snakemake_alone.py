"""Snakemake without our command line gives the same files, and behaves as its users expect."""

import json
import re

import pytest

pytestmark = pytest.mark.real


def shape(names):
    """File names without the driver's logs, and without what an interrupted attempt has more: a number and its log.

    Only by chance is a reading in a window of 50 ms, which a picture in the report then shows.
    """
    left_out = re.compile(r"/logs/|attempts/\d+/run\.log|published\.done|driver\.lock|\.db|mlartifacts|/series-")
    return {re.sub(r"/attempts/\d+/", "/attempts/N/", name) for name in names if not left_out.search(name)}


def test_snakemake_alone_gives_the_same_files_as_the_command_line(finished, home):
    result = home.fresh_snakemake("--config", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    by_command, _ = finished
    of_the_driver = {"sweeps/tiny/completed.json"}  # with it, the next command need not ask Snakemake
    assert shape(home.files()) == shape(by_command.files()) - of_the_driver
    ours, theirs = (json.loads((place.path / "sweeps/tiny/manifest.json").read_text()) for place in (home, by_command))
    assert ours["body"]["blocks"] == theirs["body"]["blocks"]
    assert (home.path / "mlflow.db").exists()


def test_overrides_can_be_given_to_snakemake_and_a_site_that_submits_may_be_looked_at_from_here(home):
    overrides = "overrides=site=slurm_example accelerator=cpu batch_size=8,16,32 repeats=2 block.size=1"
    result = home.snakemake("--dry-run", "--config", "experiment=tiny", overrides)
    assert result.returncode == 0, result.stdout
    manifest = json.loads((home.path / "sweeps/tiny/manifest.json").read_text())["body"]
    assert len(manifest["settings"]) == 3
    assert re.search(r"^block\s+6$", result.stdout, re.MULTILINE), result.stdout


def test_a_site_that_submits_is_not_measured_where_snakemake_runs(home):
    refused = home.snakemake("--config", "experiment=tiny", "overrides=site=slurm_example accelerator=cpu")
    assert refused.returncode != 0
    assert "the site 'slurm_example' submits to Slurm" in refused.stdout
    assert "Traceback" not in refused.stdout
    assert home.records("tiny") == {}
    assert not list(home.path.glob("sweeps/tiny/logs/*"))


def test_a_mistake_is_told_in_a_sentence_and_nothing_is_written(home):
    before = set(home.files())
    result = home.snakemake("--config", "experiment=tiny", "overrides=batchsize=8")
    assert result.returncode != 0
    assert "batch_size" in result.stdout
    assert "Traceback" not in result.stdout
    assert set(home.files()) == before

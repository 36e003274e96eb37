"""`snakemake --report` carries the report's page, and what is the user's own survives Snakemake."""

import base64

import pytest

pytestmark = pytest.mark.real


def test_snakemakes_report_carries_the_page(continued):
    result = continued.snakemake("--report", "all.html", "--config", "sweep=tiny")
    assert result.returncode == 0, result.stdout
    page = (continued.path / "reports/tiny/index.html").read_bytes()
    assert base64.b64encode(page).decode() in (continued.path / "all.html").read_text("utf-8")


@pytest.mark.long  # report/test_report_files.py leaves what is the user's; only here Snakemake deletes outputs first
def test_a_file_of_the_users_own_survives_that_the_report_is_made_again(continued):
    mine = continued.path / "reports" / "tiny" / "notes.svg"
    mine.write_text("mine")
    for ours in ("index.html", "speedup.svg"):
        (mine.parent / ours).unlink()
    result = continued.fresh_snakemake("--config", "sweep=tiny")
    assert result.returncode == 0, result.stdout
    assert mine.read_text() == "mine"
    assert (mine.parent / "speedup.svg").exists()

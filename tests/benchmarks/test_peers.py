"""What `benchmarks/peers.py` makes of the runs of each tool."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peers

    return peers


def run_of(peers, batch, seed, rate, process=1):
    return peers.Run(peers.Setting(batch, "32-true"), seed, 2.0, rate, process, 0.0)


def test_a_ratio_is_paired_by_seed(peers):
    """The seeds differ by far more than the settings' ratio does from one seed to the next."""
    slow, steady = (1.0, 3.0, 9.0), (2.0, 2.02, 1.98)
    runs = [run_of(peers, 32, seed, 100 * level) for seed, level in enumerate(slow)]
    runs += [run_of(peers, 64, seed, 100 * level * slow[seed]) for seed, level in enumerate(steady)]
    found = peers.resolution_of(
        [*runs, run_of(peers, 64, 3, 1.0)], [peers.Setting(32, "32-true"), peers.Setting(64, "32-true")]
    )
    logs = [math.log(level) for level in steady]
    spread = math.sqrt(sum((one - sum(logs) / 3) ** 2 for one in logs) / 2)
    assert found.pairs == 3
    assert found.half_width == pytest.approx(100 * math.expm1(4.302653 * spread / math.sqrt(3)), rel=1e-5)


def test_one_pair_has_no_interval(peers):
    runs = [run_of(peers, 32, 1, 100.0), run_of(peers, 64, 1, 200.0)]
    assert peers.resolution_of(runs, [run.setting for run in runs]) == peers.Resolution(None, 1)


def test_a_run_that_did_not_end_is_no_run_and_the_last_attempt_counts(peers, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    tool = peers.ShellLoop("python")
    work = peers.Workload((peers.Setting(32, "32-true"),), 1, 4)
    for age, (name, times) in enumerate(
        {
            "32_32-true_1_10_1": (0.0, 1.0, 2.0, 3.0, 4.0),
            "32_32-true_1_11_2": (0.0, 3.0, 4.0, 5.0, 6.0),
            "32_32-true_1_12_3": (0.0, 1.0),
        }.items()
    ):
        (notes / name).write_text("".join(f"{time}\n" for time in times))
        os.utime(notes / name, (age, age))
    (found,) = tool.finished(tmp_path, work)
    assert found.process == 11
    assert found.training_seconds == 6.0
    assert found.rate == 32.0, "three steps in three seconds, after a warm-up of one step"


def test_a_loop_in_the_shell_runs_every_setting_in_each_repeat(peers, tmp_path):
    settings = tuple(peers.Setting(batch, precision) for batch in (32, 64) for precision in ("32-true", "bf16-mixed"))
    (tmp_path / "train_digits.py").write_text("import sys; print(*sys.argv[1:])")
    command = peers.ShellLoop("python3").command(peers.Workload(settings, 2, 8), None)
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 8
    assert lines[0] == "--steps 8 --seed 1 --batch-size 32 --precision 32-true"
    assert lines[-1] == "--steps 8 --seed 2 --batch-size 64 --precision bf16-mixed"


def test_the_table_says_what_is_isolated_and_what_was_not_installed(peers):
    settings = (peers.Setting(32, "32-true"), peers.Setting(64, "32-true"))
    work = peers.Workload(settings, 2, 8)
    alone = [run_of(peers, batch, seed, 100.0, process=10 * batch + seed) for batch in (32, 64) for seed in (1, 2)]
    together = [run_of(peers, batch, seed, 100.0) for batch in (32, 64) for seed in (1, 2)]
    tools = {
        "accelsweep": [peers.Turn(peers.Swept(seconds, alone), peers.Resolution(1.25, 9)) for seconds in (10.0, 14.0)],
        "Hydra, joblib launcher": [peers.Turn(peers.Swept(9.0, together), peers.Resolution(None, 1))],
        "optimum-benchmark": [],
    }
    assert peers.table(tools, work, 180.0)[2:] == [
        "| accelsweep | 4 for 4 runs | 12 (10 to 14) | 4 (2 to 6) | 1.0 | ± 1.2 (1.2 to 1.2) % | 9/9 |",
        "| Hydra, joblib launcher | 1 for 4 runs | 9 | 1 | 0.2 | no interval | 1 |",
        "| optimum-benchmark | not installed | | | | | |",
    ]
    page = peers.page(tools, work, settings, 180.0, {"torch": "2.13.0"})
    assert "The tools took turns in 2 rounds" in page
    assert "| a ratio after 3 min |" in page


def test_only_its_own_block_of_a_page_is_replaced(peers, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "above\n<!-- a: begin, by b.py -->\nold\n<!-- a: end -->\n<!-- b: begin -->\nkept\n<!-- b: end -->\n"
    )
    peers.fill(page, "a", "| new\\1 |")
    assert page.read_text() == (
        "above\n<!-- a: begin, by b.py -->\n| new\\1 |\n<!-- a: end -->\n<!-- b: begin -->\nkept\n<!-- b: end -->\n"
    )
    with pytest.raises(SystemExit, match="0 blocks named c"):
        peers.fill(page, "c", "text")

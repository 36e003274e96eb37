"""Bad input gets one clear message and exit code 2 before anything is written; broken user code costs its own runs."""

import pytest

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.state.folders import SweepFolder

pytestmark = pytest.mark.real

BROKEN = """\
from accelsweep.workloads.models import SmallCNN


class Broken(SmallCNN):
    def training_step(self, batch, batch_index):
        raise RuntimeError("the user's own mistake")
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["experiment=tiny", "batchsize=8"], ["batchsize", "batch_size"]),
        (["experiment=tyni"], ["tyni", "tiny"]),
        (["experiment=tiny", "model=smal_cnn"], ["smal_cnn", "small_cnn"]),
        (["experiment=tiny", "precision=bf16-mixt"], ["bf16-mixt", "bf16-mixed"]),
        (["experiment=tiny", "batch_size=many"], ["batch_size", "many"]),
        (["experiment=tiny", "--name", "../elsewhere"], ["../elsewhere", "--name elsewhere"]),
        (["experiment=tiny", "--profile", "nowhere"], ["nowhere", "local"]),
        (["experiment=tiny", "--time-budget", "soon"], ["--time-budget", "30m"]),
        (["experiment=tiny", "batch_size=[1"], ["batch_size"]),
    ],
)
def test_a_mistake_exits_with_2_names_the_remedy_and_writes_nothing(home, arguments, words):
    before = set(home.files())
    result = home.accelsweep("run", *arguments)
    assert result.returncode == 2, result.stdout
    for word in words:
        assert word in result.stdout
    assert "Traceback" not in result.stdout
    assert set(home.files()) == before


def test_broken_user_code_shows_their_traceback_and_costs_only_its_own_runs(home):
    home.module("mine", BROKEN)
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1",
        "model._target_=accelsweep.workloads.models.SmallCNN,mine.Broken",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    folder = SweepFolder(home.path, "tiny")
    records = [Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()]
    assert sorted(record.outcome for record in records) == [Outcome.crashed, Outcome.measured]
    crashed = next(record for record in records if record.outcome is Outcome.crashed)
    assert "the user's own mistake" in crashed.reason
    log = (folder.run(crashed.run) / "run.log").read_text()
    assert "mine.py" in log
    assert "the user's own mistake" in log
    assert (folder.report / "index.html").exists()
    assert (
        crashed.cell in (folder.report / "report.md").read_text()
        or "mistake" in (folder.report / "report.md").read_text()
    )


def test_hostile_values_break_no_shell_command(home):
    hostile = "a b'c\";$(touch pwned)`touch pwned`\n../ü{x}"
    quoted = hostile.replace("\\", "\\\\").replace('"', '\\"')
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", f'+note="{quoted}"', "--name", "hostile"
    )
    assert result.returncode == 0, result.stdout
    assert not list(home.path.rglob("pwned"))
    run = Manifest.read(SweepFolder(home.path, "hostile").manifest).wanted_runs()[0]
    assert Record.read(SweepFolder(home.path, "hostile").record(run)).config.raw["note"] == hostile

"""The user's own training script, from one command to the recommendation written back."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from environments import environment
from home import Home
from polling import until
from projects import copy_project
from shared_fork_server import beside_the_server
from user_repository import commit, git

pytestmark = pytest.mark.real

SHORT = (
    "repeats=2",
    "threads=1",  # two that share a busy core wait for each other in every step
    "measure.warmup_steps=3",
    "measure.min_steps=20",
    "measure.min_seconds=0.2",
    "measure.quality_samples=640",
    "measure.probe_steps=4",
)


@pytest.fixture
def make_home(
    tmp_path: Path, leases: str, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Home]]:
    homes: list[Home] = []
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)

    def make(project: str, **environment: str) -> Home:
        home = Home(copy_project(project, tmp_path / project), ACCELSWEEP_LEASES=leases, **environment)
        shutil.copy(empty_database, home.path)
        homes.append(home)
        return home

    yield make
    for home in homes:
        home.end_processes()


def records(home: Home, sweep: str = "train") -> list[dict[str, Any]]:
    files = sorted(home.path.glob(f"sweeps/{sweep}/runs/*/record.json"))
    return [json.loads(file.read_text())["body"] for file in files]


def test_a_hydra_project_is_measured_as_it_stands_and_gets_its_recommendation_back(
    make_home: Callable[..., Home],
) -> None:
    home = make_home("hydra_template")
    before = {name: stamp for name, stamp in home.files().items() if name != "mlflow.db"}
    first = home.accelsweep("run", "devices=1,2", "batch_size=64", *SHORT)
    assert first.returncode == 0, first.stdout
    assert "trying a few steps first: 2 devices" in first.stdout
    assert {name: stamp for name, stamp in home.files().items() if name in before} == before
    assert "Traceback" not in (home.path / "sweeps/train/logs/snakemake.log").read_text()
    assert {name.split("/")[0] for name in home.files() if name not in before} <= {
        "sweeps", "reports", "mlflow.db", "mlartifacts"
    }  # fmt: skip
    measured = {(record["axes"]["devices"], record["effective"]["batch_size"]) for record in records(home)}
    assert measured == {(1, 64), (2, 32)}, "the trial found that the project divides its batch"
    assert all(record["metrics"]["quality"]["value"] > 0.2 for record in records(home))
    assert {"configs/data/blobs.yaml", "src/models/dense.py"} <= records(home)[0]["files"].keys()
    manifest = json.loads((home.path / "sweeps/train/manifest.json").read_text())["body"]
    assert (manifest["entry"]["command"], manifest["entry"]["batch_is"]) == ("python src/train.py", "global")

    home.environment |= beside_the_server()  # the first command has shown that it needs none
    again = home.accelsweep("run", "devices=1,2", "batch_size=64", *SHORT)
    assert (again.returncode, "trying" in again.stdout) == (0, False), again.stdout
    stamps = home.records("train")
    model = home.path / "src" / "models" / "dense.py"
    model.write_text(f"{model.read_text()}# edited\n")
    edited = home.accelsweep("run", "devices=1,2", "batch_size=64", *SHORT)
    assert edited.returncode == 0, edited.stdout
    assert all(stamp > stamps[name] for name, stamp in home.records("train").items())
    logs = "".join(path.read_text() for path in (home.path / "sweeps/train/logs").glob("b*.log"))
    assert "src/models/dense.py has changed" in logs

    applied = home.accelsweep("apply", "train")
    findings = json.loads((home.path / "sweeps/train/findings.json").read_text())["body"]
    if findings["recommendation"]["choice"] is None:  # on a busy machine
        assert applied.returncode == 2, applied.stdout
        assert "recommends no setting" in applied.stdout
    else:
        overlay = (home.path / "configs/experiment/accelsweep-train.yaml").read_text()
        assert overlay.startswith("# @package _global_\n# accelsweep, ")
        assert "data:\n  batch_size: 64\n" in overlay
        assert home.accelsweep("apply", "train").returncode == 2


def test_a_script_runs_in_its_own_environment(make_home: Callable[..., Home]) -> None:
    """There, torch is imported once for the check, the trial and all blocks, and what a run starts ends with it."""
    home = make_home("script")
    environment = home.path / ".venv"
    (environment / "bin").mkdir(parents=True)
    python, starts, daemons = environment / "bin" / "python", home.path / "starts", home.path / "daemons"
    python.write_text(  # same packages, other path
        f'#!/bin/sh\nexport OWN_ENVIRONMENT=yes PATH=/own:$PATH\necho "$*" >> {starts}\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    script = home.path / "train.py"
    text = script.read_text()
    daemon = f"subprocess.run('sleep 600 & echo $! >> {daemons}', shell=True, start_new_session=True)"
    own = "def main():\n    import os, subprocess\n"
    own += f'    assert os.environ["OWN_ENVIRONMENT"] and os.environ["PATH"].startswith("/own:")\n    {daemon}\n'
    script.write_text(text.replace("def main():\n", own))
    done = home.accelsweep("run", "batch_size=32,64", *SHORT, "repeats=2")
    assert done.returncode == 0, done.stdout
    (server,) = [line for line in starts.read_text().splitlines() if "accelsweep" in line]
    assert "accelsweep.worker.project_fork_server" in server
    left = [int(pid) for pid in daemons.read_text().split()]
    assert len(left) > len(records(home)) > 2, "those of the trial and of each run"
    assert not any(map(psutil.pid_exists, left))
    assert "quality: val_acc (max is better), from the project" in done.stdout
    assert "left out of the measured Trainer, besides its loggers: ModelCheckpoint" in done.stdout
    assert all(record["metrics"]["quality"]["value"] > 0.1 for record in records(home))
    assert {record["effective"]["launcher"] for record in records(home)} == {"fork"}
    assert {record["outcome"] for record in records(home)} == {"measured"}

    script.write_text(text)
    debugged = home.accelsweep("debug", "train", "batch_size=32")
    assert debugged.returncode == 0, debugged.stdout
    assert "one run in the foreground, not recorded" in debugged.stdout
    profiled = home.accelsweep("profile", "train", "batch_size=32")
    assert profiled.returncode == 0, profiled.stdout
    assert "operators in a step of batch 32" in profiled.stdout


def test_a_plain_training_loop_is_swept_over_ranks_and_precision(make_home: Callable[..., Home]) -> None:
    home = make_home("plain_script", **beside_the_server())
    before = home.files()
    done = home.accelsweep("run", "precision=32-true,bf16-mixed", "devices=1,2", *SHORT, "repeats=1")
    assert done.returncode == 0, done.stdout
    assert {record["outcome"] for record in records(home)} == {"measured"}, done.stdout
    ranks = {(record["effective"]["world_size"], record["effective"]["strategy"]) for record in records(home)}
    assert ranks == {(1, "single_device"), (2, "ddp")}
    reached = {(record["axes"]["precision"], record["effective"]["precision"]) for record in records(home)}
    assert reached == {("32-true", "32-true"), ("bf16-mixed", "bf16-mixed")}
    assert all(name in home.files() for name in before)


@pytest.mark.long  # planning/test_project_overrides.py plans with what a trial finds; only here one looks for it
def test_the_trial_finds_a_batch_size_that_only_the_script_knows(make_home: Callable[..., Home]) -> None:
    home = make_home("script", **beside_the_server())
    script = home.path / "train.py"
    text = script.read_text().replace('parser.add_argument("--batch-size", type=int, default=32)', "")
    script.write_text(text.replace("options.batch_size", 'int(open("size.txt").read())'))
    (home.path / "size.txt").write_text("40")
    done = home.accelsweep("run", "devices=1,2", *SHORT, "repeats=1")
    assert done.returncode == 0, done.stdout
    assert "batch_size=40 was found by the trial" in done.stdout
    assert done.stdout.count("trying a few steps first") == 2  # the second one shows what 2 ranks do with it
    sizes = {(record["axes"]["devices"], record["effective"]["batch_size"]) for record in records(home)}
    assert sizes == {(1, 40), (2, 40)}


@pytest.mark.parametrize(("devices", "module"), [(1, "accelsweep.worker.main"), (2, "accelsweep.executor.fork_server")])
def test_ctrl_c_during_the_trial_ends_the_command_and_leaves_nothing(
    make_home: Callable[..., Home], devices: int, module: str
) -> None:
    home = make_home("script")
    script, started = home.path / "train.py", home.path / "started"
    wait = f"import os, time; os.environ['RANK'] == '0' and os.symlink(str(os.getpid()), {str(started)!r})"
    script.write_text(script.read_text().replace("seed_everything(7)", f"{wait}; time.sleep(600)"))
    process = home.start("run", f"devices={devices}", *SHORT)
    assert process.stdout is not None
    while "trying a few steps first" not in process.stdout.readline():
        assert process.poll() is None
    until(started.is_symlink, 60)
    rank = psutil.Process(int(started.readlink().name))
    assert module in rank.cmdline(), "it imports torch only where that is sooner"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in output) == (130, False), output
    assert not rank.is_running(), "the command waits for the end of the script"
    assert not (home.path / "sweeps").exists()


@pytest.mark.long  # features/ab/test_scripts.py plans versions of a script; only here they are measured
def test_versions_and_environments_of_a_script_are_measured_side_by_side(make_home: Callable[..., Home]) -> None:
    home = make_home("script")
    git(home.path, "init", "--quiet", "--initial-branch=main")
    text = (home.path / "train.py").read_text()
    commit(home.path, {".gitignore": "sweeps/\nreports/\nmlflow.db\nmlartifacts/\nold/\nnew/\n__pycache__/\n"})
    commit(home.path, {"train.py": f"import os, sys\nprint('second', os.getcwd(), sys.prefix)\n{text}"})
    done = home.accelsweep("ab", "HEAD~1", "HEAD", "batch_size=64", "quality=val_acc", *SHORT, "repeats=1")
    assert done.returncode == 0, done.stdout
    assert {record["outcome"] for record in records(home, "ab-train")} == {"measured"}
    versions = home.path / "sweeps/ab-train/versions"
    for record in records(home, "ab-train"):
        log = (home.path / "sweeps/ab-train/runs" / record["run"] / "run.log").read_text()
        (tree,) = record["config"]["version"].values()
        second = f"second {versions / tree[:12]} {sys.prefix}\n"
        assert (second in log) == (record["axes"]["version"] == "HEAD")
        assert record["files"].keys() == {"train.py"}
    again = home.accelsweep("ab", "HEAD~1", "HEAD", "batch_size=64", "quality=val_acc", *SHORT, "repeats=1")
    assert "2 settled already" in again.stdout

    for number in (1, 2):
        commit(home.path, {"train.py": f"raise RuntimeError('no data here {number}')\n{text}"})
    failed = home.accelsweep("ab", "HEAD~1", "HEAD", "batch_size=64", "quality=val_acc", *SHORT, "--name", "failed")
    assert (failed.returncode, "no data here" in failed.stdout) == (2, True), failed.stdout
    assert not (home.path / "sweeps" / "failed").exists()
    commit(home.path, {"train.py": f"import os, sys\nprint('second', os.getcwd(), sys.prefix)\n{text}"})

    pythons = [environment(home.path / name, f"only-{name}") for name in ("old", "new")]
    given = [word for python in pythons for word in ("--python", python)]
    done = home.accelsweep(
        "ab", *given, "batch_size=64", "quality=val_acc", *SHORT, "repeats=1", "--name", "environments"
    )
    assert done.returncode == 0, done.stdout
    found = records(home, "environments")
    assert {(record["outcome"], record["effective"]["launcher"]) for record in found} == {("measured", "fork")}
    for record in found:
        log = (home.path / "sweeps/environments/runs" / record["run"] / "run.log").read_text()
        prefix = Path(record["axes"]["version"]).parents[1]
        assert f"second {home.path} {prefix}\n" in log


@pytest.mark.long  # tests of the features profile and test_snakemake_alone.py have the parts; a script has its own loop
def test_a_script_is_profiled_and_measured_by_snakemake_alone(make_home: Callable[..., Home]) -> None:
    home = make_home("script")
    config = ("entry=python train.py", f"overrides=batch_size=32,64 quality=val_acc {' '.join(SHORT)} repeats=1")
    alone = home.fresh_snakemake("--config", *config)
    assert alone.returncode == 0, alone.stdout
    assert {record["outcome"] for record in records(home)} == {"measured"}
    profiled = home.accelsweep("profile", "train", "batch_size=32", "--steps", "3")
    assert profiled.returncode == 0, profiled.stdout
    assert "net.0 forward (Linear)" in profiled.stdout


def test_a_project_is_described_once(make_home: Callable[..., Home]) -> None:
    home = make_home("hydra_template", **beside_the_server())
    assert home.accelsweep("init").returncode == 0
    text = (home.path / "accelsweep.yaml").read_text()
    assert "entry: python src/train.py\n" in text
    assert "  batch_size: data.batch_size\n" in text
    assert "quality: {metric: val/acc, better: max}\n" in text
    assert home.accelsweep("plan", "batch_size=32,64").returncode == 0
    assert home.accelsweep("init").returncode == 2
    assert (home.path / "accelsweep.yaml").read_text() == text


def test_commands_that_are_no_python_are_compared_by_the_time_of_the_whole_process(
    make_home: Callable[..., Home],
) -> None:
    home = make_home("command", OMP_NUM_THREADS="2")
    words = ("--entry", "./train.sh {batch_size}", "measure.scope=process", "batch_size=10,100", "accelerator=cpu")
    done = home.accelsweep("run", *words, "repeats=2", "--name", "whole")
    assert done.returncode == 0, done.stdout
    found = records(home, "whole")
    seconds = {record["axes"]["batch_size"]: record["metrics"]["process_seconds"]["value"] for record in found}
    assert 1.3 <= seconds[10] < 10, "it sleeps for so long, and starts a shell"
    assert 0.4 <= seconds[100] < 10
    rates = {record["axes"]["batch_size"]: record["metrics"]["processes_per_hour"]["value"] for record in found}
    assert rates[10] == pytest.approx(3600 / seconds[10])
    assert rates[100] > rates[10]
    logs = [path.read_text() for path in home.path.glob("sweeps/whole/runs/*/run.log")]
    assert logs == ["OMP 2, MKL unset\n"] * 4, "not the single thread of a job of Snakemake"

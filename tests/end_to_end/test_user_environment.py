"""Groups that share a folder, and what stands in a user's environment and folder for other programs."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from home import TINY, Home
from polling import PATIENCE_SECONDS

from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

ANN, BOB, GROUP = 61001, 61002, 61000
"""Users without an account, as in many containers, and the group that they share."""

AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become two users, by setpriv"
)

Ran = subprocess.CompletedProcess[str]


def as_user(user: int, home: Path, *command: str, umask: int = 0o002, **environment: str) -> Ran:
    """Run a command as a user who may read everything, such as our interpreter, and write what the modes allow."""
    own = home.parent / f"of-{user}"
    own.mkdir(exist_ok=True)
    os.chown(own, user, GROUP)
    reads_all = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    become = ("setpriv", f"--reuid={user}", f"--regid={GROUP}", "--clear-groups", *reads_all)
    unnamed = {
        name: value for name, value in os.environ.items() if name not in ("LOGNAME", "USER", "LNAME", "USERNAME")
    }
    return subprocess.run(
        (*become, sys.executable, *command),
        cwd=home,
        env=unnamed | {"HOME": str(own), "ACCELSWEEP_LEASES": str(own / "leases"), "COLUMNS": "200"} | environment,
        umask=umask,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users reach, which pytest's are not: access(2) asks without the rights of `as_user`."""
    with tempfile.TemporaryDirectory(prefix="accelsweep-group-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


def give_to_the_group(home: Path) -> None:
    """Let whatever is in a folder of Ann's, and whatever is made there, belong to the group."""
    for path in (home, *home.rglob("*")):
        os.chown(path, ANN, GROUP)
        path.chmod(0o2775 if path.is_dir() else 0o664)


@pytest.fixture
def shared(open_path: Path) -> Home:
    """A working folder of the group."""
    made = Home(open_path / "shared")
    made.experiment("tiny", TINY)
    give_to_the_group(made.path)
    return made


@AS_ROOT
@pytest.mark.real
@pytest.mark.long  # three sweeps; test_json_documents.py and the refusals below hold the modes of files without them
def test_two_users_take_turns_with_a_sweep_in_the_folder_of_their_group(shared: Home) -> None:
    before = 0
    for user, sizes in ((ANN, "16,32"), (BOB, "16,32,64")):
        ended = as_user(
            user, shared.path, "-m", "accelsweep", "run", "experiment=tiny", "repeats=1", f"batch_size={sizes}"
        )
        assert ended.returncode == 0, ended.stdout
        assert "MLflow: accelsweep ui" in ended.stdout, "the other's mlflow.db is written, too"
        runs = len(list(shared.path.glob("sweeps/tiny/runs/*/record.json")))
        assert runs > before
        before = runs
    again = as_user(ANN, shared.path, "-m", "accelsweep", "report", "tiny")
    assert again.returncode == 0, again.stdout
    owners = {path.stat().st_uid for path in shared.path.glob("sweeps/tiny/runs/*/record.json")}
    assert owners == {ANN, BOB}
    for path in shared.path.rglob("*"):
        closed = not stat.S_IMODE(path.stat().st_mode) & stat.S_IWGRP
        assert not closed or "mlartifacts" in path.parts, path


REFUSE = "from pathlib import Path; from accelsweep.driver.sweep_lock import refuse_unwritable; " + (
    "from accelsweep.records.layout import SweepFolder; refuse_unwritable(SweepFolder(Path.cwd(), 'tiny'))"
)


@AS_ROOT
@pytest.mark.parametrize(
    ("closed", "told"),
    [
        ("sweeps/tiny/manifest.json", "you may not write to sweeps/tiny/manifest.json, which belongs to user 61001"),
        ("reports/tiny", "you may not write to reports/tiny, which belongs to user 61001"),
        (".snakemake/metadata", "you may not write to .snakemake/metadata, which belongs to user 61001"),
        ("sweeps/tiny/runs", "you may not write to sweeps/tiny/runs, which belongs to user 61001"),
    ],
)
def test_a_sweep_that_is_closed_to_the_group_is_refused_at_once_with_what_to_ask_for(
    closed: str, told: str, example_sweep: SweepFolder, open_path: Path, last_line: Callable[[str, str], None]
) -> None:
    home = open_path / "shared"
    shutil.copytree(example_sweep.root, home / "sweeps" / "tiny")
    for made in (".snakemake/metadata", "reports/tiny"):
        (home / made).mkdir(parents=True)
    give_to_the_group(home)
    assert as_user(BOB, home, "-c", REFUSE).returncode == 0, "it is open yet"
    (home / closed).chmod(0o2755 if (home / closed).is_dir() else 0o644)
    said = as_user(BOB, home, "-c", REFUSE).stdout.splitlines()[-1]
    assert told in said
    assert "have them run `chmod -R g+w sweeps/tiny reports/tiny .snakemake`, and have everyone set `umask 002`" in said
    assert as_user(ANN, home, "-c", REFUSE).returncode == 0
    last_line("a group's sweep that its maker closed", said)


ORDERS = {
    "SNAKEMAKE_PROFILE": "/nowhere",
    "PYTHONSAFEPATH": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONOPTIMIZE": "2",
    "HYDRA_DEPRECATION_WARNINGS_AS_ERRORS": "1",
    "SELF_WARNING_AS_ERROR": "1",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "true",
    "MLFLOW_EXPERIMENT_NAME": "another",
    "MLFLOW_RUN_ID": "0" * 32,
    "BASH_ENV": "/nowhere",
    "CDPATH": "/usr",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "nowhere",
}


@pytest.mark.long  # schedulers/test_job_environment.py takes the same variables away; only here a sweep meets them
@pytest.mark.real
def test_neither_a_profile_of_the_users_workflows_nor_their_variables_steer_a_run(home: Home) -> None:
    profile = home.path / "profiles" / "default"
    profile.mkdir(parents=True)
    (profile / "profile.yaml").write_text("dry-run: true\ndefault-resources:\n  - mem_mb=1\n")
    steered = Home(home.path, **{**home.environment, **ORDERS, "GIT_DIR": str(home.path / "nowhere")})
    ended = steered.accelsweep("run", "experiment=tiny", "batch_size=16", "repeats=1")
    assert ended.returncode == 0, ended.stdout
    assert "MLflow: accelsweep ui" in ended.stdout
    (path,) = home.path.glob("sweeps/tiny/runs/*/record.json")
    record = Record.read(path)
    assert record.outcome is Outcome.measured
    log = SweepFolder(home.path, "tiny").snakemake_log.read_text()
    assert "profiles/default" not in log

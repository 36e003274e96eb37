"""ChildProcess processes of the driver: their end, the MLflow publisher, the fork server and temporary files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from environments import environment
from polling import PATIENCE_SECONDS, until
from projects import copy_project

from accelsweep.config.site import Site
from accelsweep.driver import background_processes
from accelsweep.driver.background_processes import (
    ChildProcess,
    ForkServers,
    Interpreter,
    forking_interpreters,
    sweep_temporary_folder,
)
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.preflight import check_temporary_folder
from accelsweep.files import sha256_file, tail_lines
from accelsweep.ipc import FORK_SERVER_VARIABLE
from accelsweep.planning.plan import make_plan
from accelsweep.records.cleanup import remove_ownerless_folders
from accelsweep.records.file_lock import HeldLock, acquire
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.published_state import PublishedCopy, remember_copy, run_digests
from accelsweep.tracking.snapshot import report_digest

IS_UP = "import time\nprint('up', flush=True)\nfor _ in range(600): time.sleep(0.1)"
"""It sleeps in short steps: a signal that arrives just before a sleep is not handled until the sleep ends."""
HANDLES_SIGINT = f"import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n{IS_UP}"
IGNORES_SIGINT = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{IS_UP}"


def start_child(code, tmp_path):
    child = ChildProcess([sys.executable, "-c", code], cwd=tmp_path, log=tmp_path / "log")
    while "up" not in child.log.read_text():
        time.sleep(0.01)
    return child


def test_an_interrupted_child_chooses_its_exit_code(tmp_path):
    child = start_child(HANDLES_SIGINT, tmp_path)
    child.interrupt()
    assert child.wait() == 7


def test_a_child_that_ignores_sigint_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(background_processes, "_GRACE_SECONDS", 0.2)
    child = start_child(IGNORES_SIGINT, tmp_path)
    child.interrupt()
    assert child.wait() == -9


def test_a_child_obeys_sigint_even_if_its_driver_ignores_it_in_a_scripts_background(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start_child(IS_UP, tmp_path)
        child.interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.wait() == -signal.SIGINT


@pytest.mark.skipif(sys.platform != "linux", reason="PDEATHSIG is Linux's")
def test_a_child_dies_with_a_killed_driver(tmp_path):
    driver = (
        "import sys, time\nfrom pathlib import Path\nfrom accelsweep.driver.background_processes import ChildProcess\n"
        f"child = ChildProcess([sys.executable, '-c', {IGNORES_SIGINT!r}], cwd=Path('.'), log=Path('log'))\n"
        "print(child._process.pid, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", driver], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the child outlived its driver"
            time.sleep(0.02)


KILLED = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), {})"
"""Children of tests in a shell's background ignore SIGINT."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(("killed", "reported"), [(2, False), (9, True)])
def test_a_publisher_killed_by_a_signal_is_restarted_a_few_times(
    example_sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, killed: int, reported: bool,
    last_line: Callable[[str, str], None],
) -> None:  # fmt: skip
    left = [KILLED.format(int(number))] * killed

    def start(folder: SweepFolder, *_options: str | None) -> ChildProcess:
        return ChildProcess(
            [sys.executable, "-c", left.pop() if left else "pass"], cwd=folder.home, log=folder.publish_log
        )

    monkeypatch.setattr(background_processes, "_start_publisher", start)
    monkeypatch.setattr(background_processes, "_is_published", lambda *_: False)
    background_processes.finish_publishing(start(example_sweep), example_sweep, None)
    line, copied = background_processes.mlflow_summary(example_sweep, None)
    assert not copied
    assert (f"the publisher was killed by {number.name}" in line) is reported
    assert line.endswith(f"To catch up: accelsweep publish {example_sweep.name}")
    if reported:
        last_line(f"publishing interrupted by {number.name}, again and again", line)


@pytest.mark.parametrize(
    ("script", "warnings"),
    [
        ("print('MLflow is away; the sweep goes on'); print('later'); input()", ["MLflow is away; the sweep goes on"]),
        ("print('3 runs'); input()", []),
        ("print('3 runs')", []),
        ("print('error: no password'); exit(1)", ["no password; the sweep goes on"]),
    ],
)
def test_problems_of_a_running_publisher_are_reported_and_its_progress_is_not(
    example_sweep: SweepFolder, script: str, warnings: list[str]
) -> None:
    script = script.replace("input()", "import sys, time; sys.stdout.flush(); time.sleep(60)")
    with ChildProcess([sys.executable, "-c", script], cwd=example_sweep.home, log=example_sweep.publish_log) as child:
        until(lambda: not child.running() or ("sleep" in script and bool(tail_lines(child.log))))
        assert background_processes.publisher_warnings(child) == warnings
        child.kill()


def test_the_summary_links_to_the_runs_in_mlflow_only_if_the_copy_is_complete(example_sweep: SweepFolder) -> None:
    name, uri = example_sweep.name, "http://me:hunter2@mlflow.example"
    assert background_processes.mlflow_summary(example_sweep, None) == (
        f"MLflow is incomplete: nothing has been copied yet. To catch up: accelsweep publish {name}",
        False,
    )
    records = {path.parent.name: sha256_file(path) for path in example_sweep.root.glob("runs/*/record.json")}
    digests = run_digests(Manifest.read(example_sweep.manifest), records)
    copied = PublishedCopy(experiment_id="1", active_runs=0, records=digests, report=report_digest(example_sweep))
    remember_copy(example_sweep, uri, copied)
    runs = "#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=accelsweep-1"
    link = f"MLflow: http://mlflow.example/{runs}"
    assert background_processes.mlflow_summary(example_sweep, uri) == (link, True)
    assert background_processes.how_to_open_mlflow(example_sweep, None) == "MLflow: accelsweep ui"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "error: /w/mlflow.db: MLflow's store is damaged. All records are safe",
            "/w/mlflow.db: MLflow's store is damaged",
        ),
        ("MLflow at http://h does not answer (gone); the sweep goes on", "MLflow at http://h does not answer (gone)"),
        ("3 runs\n\nerror: no room\n\n", "no room"),
    ],
)
def test_the_summary_quotes_the_publishers_last_message(
    example_sweep: SweepFolder, said: str, reason: str, last_line: Callable[[str, str], None]
) -> None:
    example_sweep.publish_log.parent.mkdir(exist_ok=True)
    example_sweep.publish_log.write_text(said)
    line, copied = background_processes.mlflow_summary(example_sweep, None)
    assert f"MLflow is incomplete: {reason}" in line
    assert line.endswith(". To catch up: accelsweep publish example")
    assert not copied
    last_line(f"publishing ended by {reason.partition(':')[2] or reason}", line)


def test_without_mlflow_no_copy_is_expected(example_sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    line, copied = background_processes.mlflow_summary(example_sweep, None)
    assert "it is not installed here (pip install mlflow)" in line
    assert copied


def test_a_damaged_store_is_reported_with_its_own_remedy_only(example_sweep: SweepFolder) -> None:
    refusal = "mlflow.db is damaged; accelsweep publish example --anew sets it aside and fills a new one"
    example_sweep.publish_log.parent.mkdir(parents=True, exist_ok=True)
    example_sweep.publish_log.write_text(f"error: {refusal}\n")
    line, copied = background_processes.mlflow_summary(example_sweep, None)
    assert line == f"MLflow is incomplete: {refusal}"
    assert not copied


TINY = ("experiment=quickstart", "batch_size=32", "devices=1", "repeats=1")


def test_a_sleep_beside_a_process_ends_with_the_process_and_with_its_time(tmp_path: Path) -> None:
    with ChildProcess([sys.executable, "-c", "input()"], cwd=tmp_path, log=tmp_path / "log") as short:
        began = time.monotonic()
        short.sleep(PATIENCE_SECONDS)
        assert time.monotonic() - began < PATIENCE_SECONDS
    with ChildProcess(["sleep", str(PATIENCE_SECONDS)], cwd=tmp_path, log=tmp_path / "log") as long:
        long.sleep(0.01)
        assert long.running()


@pytest.mark.parametrize(("given", "forks"), [("launcher=spawn", False), ("site=slurm_example", False), ("", True)])
def test_runs_that_are_not_forked_on_this_machine_need_no_fork_server(tmp_path: Path, given: str, forks: bool) -> None:
    plan = make_plan(tmp_path, [*TINY, *filter(None, [given])])
    assert forking_interpreters(plan) == ({Interpreter()} if forks else set())


def test_whole_processes_need_no_fork_server_and_runs_of_a_project_one_with_its_interpreter(tmp_path: Path) -> None:
    home = copy_project("command", tmp_path / "command")
    whole = make_plan(home, ["measure.scope=process", "batch_size=32"], entry="./train.sh {batch_size}")
    assert forking_interpreters(whole) == set()
    home = copy_project("script", tmp_path / "script")
    python = environment(home / ".venv", None)
    assert forking_interpreters(make_plan(home, ["batch_size=32"])) == {Interpreter(python, "lightning")}


def test_the_fork_server_of_an_outer_process_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORK_SERVER_VARIABLE, "outer")
    with ForkServers(tmp_path) as servers:
        servers.start([Interpreter()])
        assert os.environ[FORK_SERVER_VARIABLE] == "outer"
        servers.stop_others()
        assert os.environ[FORK_SERVER_VARIABLE] == "outer"
    assert os.environ[FORK_SERVER_VARIABLE] == "outer"


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Return this process's new children."""
    before = set(psutil.Process().children())
    return lambda: [child for child in psutil.Process().children() if child not in before]


@pytest.mark.parametrize("interpreter", [Interpreter(), Interpreter(sys.executable, "lightning")])
def test_a_command_shares_one_fork_server_which_ends_with_it_and_leaves_nothing(
    folder: SweepFolder, children: Callable[[], list[psutil.Process]], interpreter: Interpreter
) -> None:
    log = folder.fork_server_log
    log.parent.mkdir()
    log.write_text("of an earlier command")
    with ForkServers(folder.home) as servers:
        servers.log = log
        servers.start([interpreter])
        (first,) = children()
        name = os.environ[interpreter.variable]
        servers.start([interpreter])
        with ForkServers(folder.home) as inner:
            inner.start([interpreter])
        servers.stop_others([interpreter])
        assert (children(), os.environ[interpreter.variable]) == ([first], name)
        servers.stop_others()
        assert interpreter.variable not in os.environ
        assert not first.is_running()
        servers.start([interpreter])
        (second,) = children()
    assert interpreter.variable not in os.environ
    assert not second.is_running()
    assert left() == []
    assert not log.exists(), "it said nothing"


def test_what_a_fork_server_says_is_kept_with_the_sweep(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    with ForkServers(folder.home) as servers:
        servers.log = folder.fork_server_log
        servers.start([Interpreter()])
        until(lambda: any(path.stat().st_size for path in left() if path.is_file()))
    assert "accelsweep.executor.fork_server" in folder.fork_server_log.read_text()


LOCAL = Site(name="here", scheduler="local")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepFolder]:
    monkeypatch.setenv("ACCELSWEEP_LEASES", str(tmp_path / "leases"))
    made = SweepFolder(tmp_path, "tiny")
    (made.root / "blocks").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as short:  # pytest's own is too long
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield made


def left() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).rglob("*"))


def test_children_get_a_private_temporary_folder(folder: SweepFolder) -> None:
    before = os.environ["TMPDIR"]
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        assert given.parent == Path(before)
        assert given.stat().st_mode & 0o777 == 0o700
    assert os.environ["TMPDIR"] == before
    assert left() == []


def test_leftovers_of_killed_processes_are_deleted_before_the_next_command(folder: SweepFolder) -> None:
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
    (given / "pymp-left").mkdir(parents=True)
    with sweep_temporary_folder(folder, LOCAL):
        assert list(given.iterdir()) == []


def test_files_of_an_executor_that_outlives_its_driver_stay_until_it_ends(folder: SweepFolder) -> None:
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        orphan = acquire(folder.lock("b000000000000"), "b000000000000")
        assert isinstance(orphan, HeldLock)
        (given / "in-use").touch()
    with sweep_temporary_folder(folder, LOCAL):
        assert (given / "in-use").exists()
        orphan.release()
    assert left() == []


@pytest.mark.parametrize("lost", ["nothing", "the sweep's folder"])
def test_any_command_deletes_what_a_killed_driver_of_another_sweep_left(folder: SweepFolder, lost: str) -> None:
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        shutil.copytree(given.parent, folder.home / "as it was")
    shutil.copytree(folder.home / "as it was", given.parent, dirs_exist_ok=True)
    (given / "pymp-left").mkdir()
    if lost != "nothing":
        shutil.rmtree(folder.root)
    remove_ownerless_folders()
    assert left() == []


@pytest.mark.parametrize("locked", ["driver", "block"])
def test_the_folder_of_a_running_process_of_another_sweep_stays(folder: SweepFolder, locked: str) -> None:
    path = folder.driver_file("lock") if locked == "driver" else folder.lock("b000000000000")
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        holder = acquire(path, locked)
        assert isinstance(holder, HeldLock)
        os.environ["TMPDIR"] = str(given.parent)
        remove_ownerless_folders()
        assert given.exists()
        holder.release()
        remove_ownerless_folders()
        assert not given.exists()


def test_a_forged_owner_file_deletes_nothing(folder: SweepFolder) -> None:
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
        forged = given.parent / "accelsweep-0123456789ab"
        forged.mkdir()
        forged.with_suffix(".owner").write_text(str(folder.root))
        (given.parent / "accelsweep-ba9876543210.owner").write_text("no path")
    remove_ownerless_folders()
    assert forged.exists()


def test_on_a_cluster_the_folder_exists_but_tmpdir_is_not_passed_to_jobs(folder: SweepFolder) -> None:
    before = os.environ["TMPDIR"]
    with sweep_temporary_folder(folder, Site(name="there", scheduler="slurm")) as given:
        assert given is not None
        assert given.parent == Path(before)
        assert os.environ["TMPDIR"] == before
        (given / "snakemake-left").mkdir()
    assert left() == []


def test_tmpdir_is_kept_if_the_folder_cannot_be_private_or_only_its_name_is_too_long(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ["TMPDIR"]
    with sweep_temporary_folder(folder, LOCAL):
        given = Path(os.environ["TMPDIR"])
    foreign = Path(before, "foreign")
    foreign.mkdir()
    (foreign / "theirs").touch()
    given.symlink_to(foreign)
    with sweep_temporary_folder(folder, LOCAL):
        assert os.environ["TMPDIR"] == before
    assert (foreign / "theirs").exists()
    deep = foreign / ("x" * 40)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with sweep_temporary_folder(folder, LOCAL):
        assert os.environ["TMPDIR"] == before


@pytest.mark.parametrize("length", [71, 145, 500])
def test_a_tmpdir_too_long_for_sockets_is_replaced_by_a_short_place(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "/".join(["y" * 100] * 5)[: length - 1])
    with sweep_temporary_folder(folder, LOCAL) as given:
        assert given is not None
        assert given.parent == Path("/tmp")
        assert os.environ["TMPDIR"] == str(given)
        assert len(str(given)) < 71
    assert not given.exists()


def test_without_a_short_place_the_error_names_tmpdir(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 144)
    monkeypatch.setattr(background_processes, "SHORT_PLACES", ("/proc/nowhere",))
    with (
        pytest.raises(InputError, match=r"has a path of 145 characters, .* set TMPDIR to a shorter path"),
        sweep_temporary_folder(folder, LOCAL),
    ):
        pass


def test_an_executor_reports_a_long_tmpdir_before_the_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 144)
    with pytest.raises(AccelsweepError, match=r"145 characters, but sockets allow at most 70 \(TMPDIR\).*scratch"):
        check_temporary_folder()
    monkeypatch.setattr(tempfile, "tempdir", "/" + "y" * 69)
    check_temporary_folder()

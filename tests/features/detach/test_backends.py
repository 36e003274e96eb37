"""The backends of detached drivers: tmux and Slurm's commands. tests/slurm has the real Slurm."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from polling import until

from accelsweep.config.site import Site, Slurm
from accelsweep.driver.sweep_lock import refuse_if_running
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.detach import backends
from accelsweep.features.detach.backends import (
    DriverExit,
    DriverState,
    SlurmBackend,
    Submission,
    TmuxBackend,
    active_submission,
    driver_log,
    driver_name,
    select_backend,
    stop_hints,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner
from accelsweep.schedulers import slurm as slurm_
from accelsweep.schedulers.protocol import JobOffer
from accelsweep.signals import DriverEvicted, JobCancelled, raise_on_eviction

ARGUMENTS = ("two words", "a'b\"c", "$HOME;`id`", "", "#{pane_pid}", "é%d")


class FakeSlurm:
    """Records Slurm commands and answers squeue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        monkeypatch.setattr(backends, "ask", self.ask)

    def will_answer(self, *answers: str | Exception) -> None:
        self.answers = list(answers)

    def ask(self, *command: str, **_: object) -> str:
        self.commands.append(" ".join(command))
        if command[0] != "squeue":
            return ""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def calls(self, program: str) -> list[str]:
        return [command for command in self.commands if command.startswith(program)]


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(tmp_path, "some.sweep")
    driver_log(folder).parent.mkdir(parents=True)
    return folder


@pytest.fixture
def session(folder: SweepFolder) -> Iterator[str]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: tests/install-system.sh installs it")
    name = driver_name(TmuxBackend(), folder).replace(".", "-")
    yield name
    subprocess.run(["tmux", "-L", name, "kill-server"], capture_output=True, check=False)


def test_a_tmux_session_gets_the_exact_arguments_folder_and_environment(folder, session, monkeypatch):
    """Each session has its own server: a running one would give it an outdated environment."""
    monkeypatch.setenv("VARIABLE", "by us; only")
    script = 'printf "%s\\n" "$@" "$VARIABLE" "$PWD"; sleep 60'
    assert (
        TmuxBackend().start(folder, ("sh", "-c", script, "sh", *ARGUMENTS), driver_name(TmuxBackend(), folder))
        == session
    )
    until(lambda: str(folder.home) in driver_log(folder).read_text() if driver_log(folder).exists() else False, 30)
    assert driver_log(folder).read_text().splitlines() == [*ARGUMENTS, "by us; only", str(folder.home)]
    Submission(place="tmux", name=session, host=os.uname().nodename, since="").write(folder.driver_file("handed"))
    assert active_submission(folder)[1].description == f"tmux session {session}"
    subprocess.run(TmuxBackend().stop_command(session), shell=True, check=True)  # as a user types it
    until(lambda: TmuxBackend().state(session) is None, 30)
    assert active_submission(folder) is None


def test_a_machine_without_systemd_and_tmux_is_rejected_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="install tmux, or leave out --detach"):
        select_backend(Site(name="local"))


def test_a_driver_that_has_ended_is_not_active_whatever_its_backend(folder):
    Submission(place="tmux", name="none", host="elsewhere", since="").write(folder.driver_file("handed"))
    LockOwner(block="driver", host="elsewhere", pid=7, process_started=0.0, since="").write(folder.driver_file("lock"))
    DriverExit(code=0).write(folder.driver_file("ended"))
    assert active_submission(folder) is None


def test_a_driver_on_another_machine_is_recognised_by_its_lock(folder):
    Submission(place="tmux", name="none", host="elsewhere", since="").write(folder.driver_file("handed"))
    assert active_submission(folder) is None
    LockOwner(block="driver", host="elsewhere", pid=7, process_started=0.0, since="").write(folder.driver_file("lock"))
    assert active_submission(folder)[1] == DriverState("tmux on elsewhere")


def test_sessions_are_named_by_folder_and_jobs_by_sweep(tmp_path):
    here, there = (SweepFolder(tmp_path / name, "some") for name in ("here", "there"))
    assert driver_name(TmuxBackend(), here) != driver_name(TmuxBackend(), there)
    assert driver_name(SlurmBackend(), here) == driver_name(SlurmBackend(), there) == "accelsweep-driver-some"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A Slurm that gives one answer after another, and repeats the last one."""
    return FakeSlurm(monkeypatch)


@pytest.mark.parametrize(
    ("listing", "state"),
    [
        (
            "12|PENDING|Dependency|\n",
            DriverState("Slurm job 12 PENDING (Dependency)", pending=True, reason="Dependency"),
        ),
        ("12|RUNNING|None|n1\n", DriverState("Slurm job 12 RUNNING on n1", reason="None")),
        ("112|RUNNING|None|n1\n", None),
        ("", None),
        (AccelsweepError("squeue failed: slurm_load_jobs error: Invalid job id specified"), None),
    ],
)
def test_a_drivers_job_is_found_by_its_id_until_slurm_forgets_it(slurm, listing, state):
    slurm.will_answer(listing)
    assert SlurmBackend().state("12") == state


def test_an_outage_of_slurm_is_neither_an_end_nor_a_cancellation(slurm):
    slurm.will_answer(AccelsweepError("squeue did not answer within 60 s"))
    with pytest.raises(AccelsweepError, match="did not answer"):
        SlurmBackend().state("12")
    assert SlurmBackend().is_cancelled("12") is False


def test_a_sweep_with_a_drivers_job_is_not_run_while_slurm_does_not_answer(folder, slurm, monkeypatch, tmp_path):
    Submission(place="slurm", name="12", host="login", since="").write(folder.driver_file("handed"))
    slurm.will_answer(AccelsweepError("squeue did not answer within 60 s"))
    (tmp_path / "squeue").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AccelsweepError, match=r"it is unknown whether job 12, .* is still active: squeue did"):
        refuse_if_running(folder)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    refuse_if_running(folder)
    monkeypatch.delenv("SLURM_JOB_ID")
    (tmp_path / "squeue").unlink()
    refuse_if_running(folder)


@pytest.mark.parametrize(("used", "cancelled"), [("", False), ("0:00\n", False), ("1:05\n", True)])
def test_an_ending_job_was_cancelled_unless_it_counts_as_pending_again(slurm, used, cancelled):
    slurm.will_answer(used)
    assert SlurmBackend().is_cancelled("12") is cancelled


@pytest.mark.parametrize(
    ("states", "patience", "commands"),
    [
        (["12|PENDING|Priority|\n", ""], 60.0, ["scancel 12"]),
        (["12|RUNNING|None|n1\n", "12|COMPLETING|None|n1\n", ""], 60.0, ["scancel --batch --signal=INT 12"]),
        (["12|RUNNING|None|n1\n", ""], -1.0, ["scancel 12"]),
    ],
    ids=["before it begins", "as by Ctrl-C", "one that takes too long"],
)
def test_cancel_old_stops_a_drivers_job(slurm, monkeypatch, states, patience, commands):
    monkeypatch.setattr(backends, "_POLL_SECONDS", 0.0)
    slurm.will_answer(*states)
    messages = []
    SlurmBackend().stop("12", messages.append, patience_seconds=patience)
    assert slurm.calls("scancel") == commands
    assert len(messages) == 1


def test_a_successor_is_submitted_once_even_if_sbatch_reported_a_failure(slurm, folder):
    """Sbatch fails for a job that the controller accepted, but answered too late."""
    slurm.will_answer("14|afterany:112(unfulfilled)\n15|afterany:12(unfulfilled)\n")
    assert SlurmBackend().start(folder, ("true",), "accelsweep-driver-x", after="12") == "15"
    assert slurm.calls("sbatch") == []
    assert "--name=accelsweep-driver-x" in slurm.calls("squeue")[0]
    slurm.will_answer("14|afterany:112(unfulfilled)\n")
    SlurmBackend().start(folder, ("true",), "accelsweep-driver-x", after="12")
    assert len(slurm.calls("sbatch")) == 1


def options(slurm: Slurm, folder: SweepFolder, after: str | None = None) -> dict[str, str]:
    given = SlurmBackend(slurm).sbatch_options(folder, "accelsweep-driver-x", after)
    return dict(option.partition("=")[::2] for option in given)


def test_a_drivers_job_requests_no_gpu_a_signal_before_its_end_and_the_log(tmp_path):
    folder = SweepFolder(tmp_path / "100%j", "some")
    given = options(Slurm(partition="gpu", cpu_partition="cpu", account="a", max_minutes=1440), folder)
    assert (given["--partition"], given["--account"], given["--time"]) == ("cpu", "a", "1440")
    assert given["--signal"] == "B:USR1@180"
    assert given["--output"] == str(driver_log(folder)).replace("%", "%%")
    assert not {"--gpus", "--gres", "--dependency", "--qos"} & given.keys()


def test_a_drivers_own_partition_time_and_memory_are_used_and_a_short_limit_has_a_short_signal_time(folder):
    driver = {"partition": "long", "minutes": 2, "mem_mb": 6000}
    given = options(Slurm(partition="gpu", max_minutes=60, driver=driver), folder, after="12")
    assert (given["--partition"], given["--time"], given["--mem"]) == ("long", "2", "6000M")
    assert (given["--signal"], given["--dependency"]) == ("B:USR1@30", "afterany:12")


def test_the_driver_of_a_fleet_runs_on_no_node_that_it_compares(folder, monkeypatch):
    backend = SlurmBackend(Slurm(partition="gpu"), avoid=("n1", "n2"))
    assert "--exclude=n1,n2" in backend.sbatch_options(folder, "accelsweep-driver-x")

    monkeypatch.setattr(
        backends, "offer", lambda _: JobOffer(False, "Requested node configuration is not available", "")
    )
    with pytest.raises(
        InputError,
        match=r"not available\), which must not run on any of the 2 nodes .* set site\.slurm\.driver\.partition",
    ):
        backend.check(folder, "accelsweep-driver-x")


WHOLE = "--partition=cpu --exclusive"


def offers(taken_on: Sequence[str], needed: Sequence[str]) -> Callable[[str], JobOffer]:
    """Fake Slurm: a driver starts on the first of these nodes that is not excluded; blocks need all `needed`."""

    def offer(options: str) -> JobOffer:
        excluded = re.search(r"--exclude=(\S+)", options)
        avoided = excluded[1].split(",") if excluded else []
        if options.startswith(WHOLE):
            return JobOffer(not set(avoided) & set(needed), "Requested node configuration is not available", "")
        node = next((name for name in taken_on if name not in avoided), "")
        return JobOffer(bool(node), "Requested node configuration is not available", "sbatch ...", nodes=node)

    return offer


def test_a_driver_avoids_nodes_that_the_sweeps_exclusive_jobs_need(folder, monkeypatch):
    monkeypatch.setattr(backends, "offer", offers(["n1", "n2", "n3"], needed=["n1", "n2"]))
    backend = SlurmBackend(Slurm(partition="cpu"), blocks=[WHOLE])
    backend.check(folder, "accelsweep-driver-x")
    assert "--exclude=n1,n2" in backend.sbatch_options(folder, "accelsweep-driver-x")


def test_a_driver_that_would_hold_the_only_node_of_its_sweep_is_rejected(folder, monkeypatch):
    monkeypatch.setattr(backends, "offer", offers(["n1"], needed=["n1"]))
    with pytest.raises(
        InputError, match=r"would occupy n1, .*: set site\.slurm\.driver\.partition to a partition with other"
    ):
        SlurmBackend(Slurm(partition="cpu"), blocks=[WHOLE]).check(folder, "accelsweep-driver-x")


@pytest.mark.parametrize(
    ("said", "driver", "keys"),
    [
        ("Invalid qos specification", None, "site.slurm.qos=gold"),
        (
            "Invalid account or account/partition combination",
            None,
            "site.slurm.account=a or site.slurm.cpu_partition=c",
        ),
        ("Invalid partition name specified", {"partition": "long"}, "site.slurm.driver.partition=long"),
        ("Requested time limit is invalid (exceeds)", {"minutes": 9}, "site.slurm.driver.minutes=9"),
        ("Memory specification can not be satisfied", None, "site.slurm.driver.mem_mb"),
    ],
)
def test_a_driver_job_that_slurm_refuses_is_reported_with_the_drivers_keys(folder, monkeypatch, said, driver, keys):
    monkeypatch.setattr(backends, "offer", lambda _: JobOffer(False, said, "sbatch --test-only ..."))
    slurm = Slurm(partition="gpu", cpu_partition="c", account="a", qos="gold", driver=driver)
    with pytest.raises(InputError) as refused:
        SlurmBackend(slurm).check(folder, "accelsweep-driver-x")
    assert f"({said}): change {keys}. To try it by hand: sbatch --test-only" in str(refused.value)


@pytest.mark.parametrize("reason", ["AssocMaxWallDurationPerJobLimit", "QOSMaxCpuPerUserLimit", "PartitionTimeLimit"])
def test_a_driver_job_that_could_never_start_is_cancelled_and_rejected(folder, slurm, monkeypatch, reason):
    monkeypatch.setattr(slurm_, "ask", lambda *_: "")  # nothing else of the user's runs
    slurm.will_answer(f"12|PENDING|{reason}|\n")
    monkeypatch.setattr(backends, "ask", lambda *words, **_: "12\n" if words[0] == "sbatch" else slurm.ask(*words))
    with pytest.raises(
        InputError, match=rf"could never start \({reason}\): change site\.slurm\.\S+\. .* 12 was cancelled"
    ):
        SlurmBackend(Slurm(max_minutes=9)).start(folder, ("true",), "accelsweep-driver-x")
    assert slurm.calls("scancel") == ["scancel 12"]


def test_a_pending_driver_is_cancelled_and_a_running_one_interrupted():
    first, then = stop_hints(SlurmBackend(), "12", pending=True)
    assert first == "stop it while it is pending: scancel 12"
    assert then == "stop it once it runs, like Ctrl-C: scancel --batch --signal=INT 12"
    assert stop_hints(SlurmBackend(), "12", pending=False) == ["stop it, like Ctrl-C: scancel --batch --signal=INT 12"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of a driver's signals."""
    before = {each: signal.getsignal(each) for each in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("number", "again", "cancelled"), [(signal.SIGUSR1, True, True), (signal.SIGTERM, False, False)]
)
def test_a_driver_is_evicted_once_when_its_job_is_signalled(number, again, cancelled):
    raise_on_eviction(lambda: cancelled)
    with pytest.raises(DriverEvicted) as raised:
        signal.raise_signal(number)
    assert raised.value.resubmit is again
    signal.raise_signal(number)


@pytest.mark.usefixtures("handlers")
def test_a_cancelled_driver_job_is_interrupted_once():
    raise_on_eviction(lambda: True)
    with pytest.raises(KeyboardInterrupt) as raised:
        signal.raise_signal(signal.SIGTERM)
    assert isinstance(raised.value, JobCancelled)
    signal.raise_signal(signal.SIGTERM)

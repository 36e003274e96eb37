"""The places that a driver can be handed over to, and what is known of it there; tests/slurm has the cluster's."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from patience import until

from accelsweep.config.site import Site, Slurm
from accelsweep.driver.sweep_lock import refuse_if_running
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.detach import places
from accelsweep.features.detach.places import (
    DriverExit,
    DriverJob,
    StartedDriver,
    Tmux,
    Whereabouts,
    detached,
    driver_log,
    name_in,
    place_for,
    ways_to_end,
)
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner
from accelsweep.schedulers import slurm as slurm_
from accelsweep.schedulers.protocol import JobOffer
from accelsweep.signals import DriverEvicted, JobCancelled, raise_on_eviction

WORDS = ("two words", "a'b\"c", "$HOME;`id`", "", "#{pane_pid}", "é%d")


class Slurms:
    """What Slurm's commands were, and what squeue answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        monkeypatch.setattr(places, "ask", self.ask)

    def says(self, *answers: str | Exception) -> None:
        self.answers = list(answers)

    def ask(self, *command: str, **_: object) -> str:
        self.commands.append(" ".join(command))
        if command[0] != "squeue":
            return ""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def asked(self, program: str) -> list[str]:
        return [command for command in self.commands if command.startswith(program)]


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    made = SweepFolder(tmp_path, "some.sweep")
    driver_log(made).parent.mkdir(parents=True)
    return made


@pytest.fixture
def session(folder: SweepFolder) -> Iterator[str]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: tests/install-system.sh installs it")
    name = name_in(Tmux(), folder).replace(".", "-")
    yield name
    subprocess.run(["tmux", "-L", name, "kill-server"], capture_output=True, check=False)


def test_a_tmux_session_gets_the_words_the_folder_and_the_environment_exactly(folder, session, monkeypatch):
    """Each session has a server of its own: one that runs already would give it an environment of long ago."""
    monkeypatch.setenv("SAID", "by us; only")
    script = 'printf "%s\\n" "$@" "$SAID" "$PWD"; sleep 60'
    assert Tmux().start(folder, ("sh", "-c", script, "sh", *WORDS), name_in(Tmux(), folder)) == session
    until(lambda: str(folder.home) in driver_log(folder).read_text() if driver_log(folder).exists() else False, 30)
    assert driver_log(folder).read_text().splitlines() == [*WORDS, "by us; only", str(folder.home)]
    StartedDriver(place="tmux", name=session, host=os.uname().nodename, since="").write(folder.driver_file("handed"))
    assert detached(folder)[1].words == f"tmux session {session}"
    subprocess.run(Tmux().end_with(session), shell=True, check=True)  # as a user types it
    until(lambda: Tmux().state(session) is None, 30)
    assert detached(folder) is None


def test_a_machine_with_neither_systemd_nor_tmux_is_refused_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="install tmux, or leave --detach out"):
        place_for(Site(name="local"))


def test_a_head_that_has_ended_is_nowhere_whatever_became_of_its_place(folder):
    StartedDriver(place="tmux", name="none", host="elsewhere", since="").write(folder.driver_file("handed"))
    LockOwner(block="head", host="elsewhere", pid=7, process_started=0.0, since="").write(folder.driver_file("claim"))
    DriverExit(code=0).write(folder.driver_file("ended"))
    assert detached(folder) is None


def test_a_head_on_another_machine_is_told_by_its_hold(folder):
    StartedDriver(place="tmux", name="none", host="elsewhere", since="").write(folder.driver_file("handed"))
    assert detached(folder) is None
    LockOwner(block="head", host="elsewhere", pid=7, process_started=0.0, since="").write(folder.driver_file("claim"))
    assert detached(folder)[1] == Whereabouts("tmux on elsewhere")


def test_two_folders_have_a_session_each_and_jobs_are_called_after_their_sweep(tmp_path):
    here, there = (SweepFolder(tmp_path / name, "some") for name in ("here", "there"))
    assert name_in(Tmux(), here) != name_in(Tmux(), there)
    assert name_in(DriverJob(), here) == name_in(DriverJob(), there) == "accelsweep-head-some"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurms:
    """Slurm's answers, one after the other, the last one for ever; tests/slurm asks the real thing."""
    return Slurms(monkeypatch)


@pytest.mark.parametrize(
    ("listing", "found"),
    [
        (
            "12|PENDING|Dependency|\n",
            Whereabouts("Slurm's job 12 PENDING (Dependency)", waits=True, reason="Dependency"),
        ),
        ("12|RUNNING|None|n1\n", Whereabouts("Slurm's job 12 RUNNING on n1", reason="None")),
        ("112|RUNNING|None|n1\n", None),
        ("", None),
        (AccelsweepError("squeue failed: slurm_load_jobs error: Invalid job id specified"), None),
    ],
)
def test_a_heads_job_is_known_by_its_number_until_slurm_forgets_it(slurm, listing, found):
    slurm.says(listing)
    assert DriverJob().state("12") == found


def test_a_slurm_that_does_not_answer_is_no_end_of_a_head_and_no_cancelling(slurm):
    slurm.says(AccelsweepError("squeue did not answer within 60 s"))
    with pytest.raises(AccelsweepError, match="did not answer"):
        DriverJob().state("12")
    assert DriverJob().cancelled("12") is False


def test_a_sweep_with_a_heads_job_is_left_alone_while_slurm_does_not_answer(folder, slurm, monkeypatch, tmp_path):
    StartedDriver(place="slurm", name="12", host="login", since="").write(folder.driver_file("handed"))
    slurm.says(AccelsweepError("squeue did not answer within 60 s"))
    (tmp_path / "squeue").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AccelsweepError, match="job 12, still waits or runs is not known: squeue did not answer"):
        refuse_if_running(folder)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    refuse_if_running(folder)
    monkeypatch.delenv("SLURM_JOB_ID")
    (tmp_path / "squeue").unlink()
    refuse_if_running(folder)


@pytest.mark.parametrize(("used", "cancelled"), [("", False), ("0:00\n", False), ("1:05\n", True)])
def test_a_job_that_is_being_ended_was_cancelled_unless_it_counts_as_waiting_again(slurm, used, cancelled):
    slurm.says(used)
    assert DriverJob().cancelled("12") is cancelled


@pytest.mark.parametrize(
    ("states", "grace", "commands"),
    [
        (["12|PENDING|Priority|\n", ""], 60.0, ["scancel 12"]),
        (["12|RUNNING|None|n1\n", "12|COMPLETING|None|n1\n", ""], 60.0, ["scancel --batch --signal=INT 12"]),
        (["12|RUNNING|None|n1\n", ""], -1.0, ["scancel 12"]),
    ],
    ids=["before it begins", "as by Ctrl-C", "one that takes too long"],
)
def test_cancel_old_ends_a_heads_job(slurm, monkeypatch, states, grace, commands):
    monkeypatch.setattr(places, "_LOOK_SECONDS", 0.0)
    slurm.says(*states)
    said = []
    DriverJob().end("12", said.append, grace_seconds=grace)
    assert slurm.asked("scancel") == commands
    assert len(said) == len(set(said)) == 1, "each command is told once"


def test_the_next_head_is_submitted_once_although_sbatch_said_that_it_was_not(slurm, folder):
    """It says so of a job that the controller took, but answered too late."""
    slurm.says("14|afterany:112(unfulfilled)\n15|afterany:12(unfulfilled)\n")
    assert DriverJob().start(folder, ("true",), "accelsweep-head-x", after="12") == "15"
    assert slurm.asked("sbatch") == []
    assert "--name=accelsweep-head-x" in slurm.asked("squeue")[0]
    slurm.says("14|afterany:112(unfulfilled)\n")
    DriverJob().start(folder, ("true",), "accelsweep-head-x", after="12")
    assert len(slurm.asked("sbatch")) == 1


def options(slurm: Slurm, folder: SweepFolder, after: str | None = None) -> dict[str, str]:
    given = DriverJob(slurm)._options(folder, "accelsweep-head-x", after)
    return dict(option.partition("=")[::2] for option in given)


def test_a_heads_job_takes_no_gpu_a_notice_before_its_end_and_the_log(tmp_path):
    folder = SweepFolder(tmp_path / "100%j", "some")
    given = options(Slurm(partition="gpu", cpu_partition="cpu", account="a", max_minutes=1440), folder)
    assert (given["--partition"], given["--account"], given["--time"]) == ("cpu", "a", "1440")
    assert given["--signal"] == "B:USR1@180"
    assert given["--output"] == str(driver_log(folder)).replace("%", "%%")
    assert not {"--gpus", "--gres", "--dependency", "--qos"} & given.keys()


def test_a_heads_own_partition_time_and_memory_count_and_a_short_time_leaves_a_short_notice(folder):
    head = {"partition": "long", "minutes": 2, "mem_mb": 6000}
    given = options(Slurm(partition="gpu", max_minutes=60, head=head), folder, after="12")
    assert (given["--partition"], given["--time"], given["--mem"]) == ("long", "2", "6000M")
    assert (given["--signal"], given["--dependency"]) == ("B:USR1@30", "afterany:12")


def test_the_head_of_a_fleet_holds_no_node_that_it_compares(folder, monkeypatch):
    place = DriverJob(Slurm(partition="gpu"), avoid=("n1", "n2"))
    assert "--exclude=n1,n2" in place._options(folder, "accelsweep-head-x", None)

    monkeypatch.setattr(places, "offer", lambda _: JobOffer(False, "Requested node configuration is not available", ""))
    with pytest.raises(
        InputError,
        match=r"not available\)\. A fleet's driver holds none of the 2 nodes .* site\.slurm\.head\.partition names",
    ):
        place.check(folder, "accelsweep-head-x")


WHOLE = "--partition=cpu --exclusive"


def offers(taken_on: Sequence[str], needed: Sequence[str]) -> Callable[[str], JobOffer]:
    """Return a Slurm that starts a driver on the first node that is not excluded; blocks need all `needed`."""

    def offer(options: str) -> JobOffer:
        excluded = re.search(r"--exclude=(\S+)", options)
        away = excluded[1].split(",") if excluded else []
        if options.startswith(WHOLE):
            return JobOffer(not set(away) & set(needed), "Requested node configuration is not available", "")
        node = next((name for name in taken_on if name not in away), "")
        return JobOffer(bool(node), "Requested node configuration is not available", "sbatch ...", nodes=node)

    return offer


def test_a_head_stays_away_from_nodes_that_its_sweeps_jobs_need_whole(folder, monkeypatch):
    monkeypatch.setattr(places, "offer", offers(["n1", "n2", "n3"], needed=["n1", "n2"]))
    place = DriverJob(Slurm(partition="cpu"), blocks=[WHOLE])
    place.check(folder, "accelsweep-head-x")
    assert "--exclude=n1,n2" in place._options(folder, "accelsweep-head-x", None)


def test_a_head_that_would_hold_the_only_node_of_its_sweep_is_refused(folder, monkeypatch):
    monkeypatch.setattr(places, "offer", offers(["n1"], needed=["n1"]))
    with pytest.raises(
        InputError, match=r"would hold n1, .*: site\.slurm\.head\.partition names a partition with other"
    ):
        DriverJob(Slurm(partition="cpu"), blocks=[WHOLE]).check(folder, "accelsweep-head-x")


@pytest.mark.parametrize(
    ("said", "head", "keys"),
    [
        ("Invalid qos specification", None, "site.slurm.qos=gold"),
        (
            "Invalid account or account/partition combination",
            None,
            "site.slurm.account=a or site.slurm.cpu_partition=c",
        ),
        ("Invalid partition name specified", {"partition": "long"}, "site.slurm.head.partition=long"),
        ("Requested time limit is invalid (exceeds)", {"minutes": 9}, "site.slurm.head.minutes=9"),
        ("Memory specification can not be satisfied", None, "site.slurm.head.mem_mb"),
    ],
)
def test_a_heads_job_that_slurm_refuses_is_told_with_the_heads_own_keys(folder, monkeypatch, said, head, keys):
    monkeypatch.setattr(places, "offer", lambda _: JobOffer(False, said, "sbatch --test-only ..."))
    slurm = Slurm(partition="gpu", cpu_partition="c", account="a", qos="gold", head=head)
    with pytest.raises(InputError) as refused:
        DriverJob(slurm).check(folder, "accelsweep-head-x")
    assert f"({said}): change {keys}. To try it by hand: sbatch --test-only" in str(refused.value)


@pytest.mark.parametrize("reason", ["AssocMaxWallDurationPerJobLimit", "QOSMaxCpuPerUserLimit", "PartitionTimeLimit"])
def test_a_heads_job_that_could_never_start_is_cancelled_and_refused(folder, slurm, monkeypatch, reason):
    monkeypatch.setattr(slurm_, "ask", lambda *_: "")  # nothing else of the user's runs
    slurm.says(f"12|PENDING|{reason}|\n")
    monkeypatch.setattr(places, "ask", lambda *words, **_: "12\n" if words[0] == "sbatch" else slurm.ask(*words))
    with pytest.raises(
        InputError, match=rf"could never start \({reason}\): change site\.slurm\.\S+\. .* 12 is cancelled"
    ):
        DriverJob(Slurm(max_minutes=9)).start(folder, ("true",), "accelsweep-head-x")
    assert slurm.asked("scancel") == ["scancel 12"]


def test_a_head_that_waits_is_ended_by_a_plain_scancel_and_one_that_runs_as_by_ctrl_c():
    first, then = ways_to_end(DriverJob(), "12", waits=True)
    assert first == "end it while it waits: scancel 12"
    assert then == "end it once it runs, as Ctrl-C would: scancel --batch --signal=INT 12"
    assert ways_to_end(DriverJob(), "12", waits=False) == ["end it, as Ctrl-C would: scancel --batch --signal=INT 12"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of a driver's signals as they were, afterwards."""
    before = {each: signal.getsignal(each) for each in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("number", "again", "cancelled"), [(signal.SIGUSR1, True, True), (signal.SIGTERM, False, False)]
)
def test_a_head_leaves_once_when_its_job_is_told_to_end(number, again, cancelled):
    raise_on_eviction(lambda: cancelled)
    with pytest.raises(DriverEvicted) as raised:
        signal.raise_signal(number)
    assert raised.value.resubmit is again
    signal.raise_signal(number)


@pytest.mark.usefixtures("handlers")
def test_a_cancelled_job_of_a_head_is_ctrl_c_once():
    raise_on_eviction(lambda: True)
    with pytest.raises(KeyboardInterrupt) as raised:
        signal.raise_signal(signal.SIGTERM)
    assert isinstance(raised.value, JobCancelled)
    signal.raise_signal(signal.SIGTERM)

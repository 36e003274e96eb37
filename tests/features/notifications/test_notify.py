"""Notices: what is said when, to real commands and to a real web server, and what is never said."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from example_sweep import build_example_sweep
from hand_clock import FakeClock
from patience import until

from accelsweep.errors import EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, InputError
from accelsweep.features.notifications import notify
from accelsweep.features.notifications.notify import STANDSTILL_SECONDS, Message, Notices, Target, redacted
from accelsweep.records.layout import SweepFolder

MESSAGE = Message("end", "accelsweep mine", "it has ended; $(touch hacked) `touch hacked`")


@dataclass
class Progress:
    """A sweep of 24 runs as notices see it."""

    done: int = 0
    total: int = 24
    failure: str | None = None
    steps: int = 0

    def activity(self) -> Any:
        return self.done, self.steps


@dataclass
class Server:
    """A web server that keeps what is posted to it, and answers with `status`."""

    port: int = 0
    status: int = 200
    posted: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        found.port = http.server_port
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield found
        http.shutdown()
        thread.join()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def heard(tmp_path: Path, clock: FakeClock) -> tuple[Notices, Path, list[str]]:
    """Notices to a command that appends to a file; the file; and what was said of notices that were lost."""
    file, said = tmp_path / "heard.txt", list[str]()
    folder = SweepFolder(tmp_path, "mine")
    target = Target(f"command: cat >> {file}")
    return Notices(folder, [target], said.append, clock), file, said


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_command_gets_the_message_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "heard.txt"
    command = f'command: cd {tmp_path}; cat > {file}; echo "$ACCELSWEEP_NOTICE_ABOUT|$ACCELSWEEP_NOTICE" >> {file}'
    assert Target(command).send(MESSAGE) is None
    whole = f"{MESSAGE.title}: {MESSAGE.text}"
    assert lines(file) == [whole, f"end|{whole}"]
    assert not (tmp_path / "hacked").exists()


def test_a_web_server_gets_the_message(server: Server) -> None:
    target = Target(f"json://127.0.0.1:{server.port}/hook")
    target.check()
    assert server.posted == [], "a check sends nothing"
    assert target.send(MESSAGE) is None
    assert [(one["title"], one["message"]) for one in server.posted] == [(MESSAGE.title, MESSAGE.text)]


def test_a_lost_notice_is_said_without_its_address(server: Server, tmp_path: Path, clock: FakeClock) -> None:
    server.status = 500
    address = f"json://somebody:hunter2@127.0.0.1:{server.port}/T0K3N/path"
    said: list[str] = []
    Notices(SweepFolder(tmp_path, "mine"), [Target(address)], said.append, clock).ended(EXIT_INTERRUPTED)
    assert len(server.posted) == 1
    [line] = said
    assert line.startswith("no notice reached json://***: it ended with exit code 1")
    for secret in ("somebody", "hunter2", "T0K3N", "path", str(server.port)):
        assert secret not in line


def test_a_command_that_fails_is_said_with_its_last_words(tmp_path: Path, clock: FakeClock) -> None:
    said: list[str] = []
    command = Target("command:sh -c 'echo no mailbox at https://me:hunter2@host >&2; exit 7'")
    Notices(SweepFolder(tmp_path, "mine"), [command], said.append, clock).ended(EXIT_INTERRUPTED)
    assert said == ["no notice reached command:sh: it ended with exit code 7: no mailbox at https://***@host"]


@pytest.mark.real
def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 5.0)  # on a busy machine a shell needs a second to begin
    why = Target(f"command: sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' & wait").send(MESSAGE)
    assert why == "it took longer than 5 s"
    child = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(child))  # a kill is heard a moment after it is sent


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("command: ", "names no command"),
        ("nonsense://T0K3N/x", "nonsense://\\*\\*\\*: .*no such service"),
        ("T0K3N", "--notify \\*\\*\\*: .*no such service"),
    ],
)
def test_an_address_that_nobody_could_reach_is_refused_at_once(address: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        Target(address).check()
    assert "T0K3N" not in str(refused.value)


def test_without_apprise_the_refusal_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apprise.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(InputError, match="pip install 'accelsweep\\[notify\\]'"):
        Target("json://127.0.0.1/hook").check()
    Target("command: true").check()


def test_every_part_of_an_address_is_cut_from_a_sentence() -> None:
    said = "no route to hooks.example.org for /services/T0K3N?key=abcdef"
    cut = redacted(said, "slack://hooks.example.org/services/T0K3N?key=abcdef")
    assert cut == "no route to *** for /***/***?key=***"


def test_the_first_failure_is_told_once(heard: tuple[Notices, Path, list[str]]) -> None:
    notices, file, said = heard
    progress = Progress()
    notices.progressed(progress)
    assert lines(file) == []
    progress.failure = "batch_size=32, repeat 0  crashed: \x1b[2Jno https://me:hunter2@host"
    notices.progressed(progress)
    notices.progressed(progress)
    [line] = lines(file)
    assert line.startswith("accelsweep mine: the first run failed: batch_size=32, repeat 0  crashed: ")
    assert "\x1b" not in line
    assert "hunter2" not in line
    assert said == []


def test_a_standstill_is_told_once_and_again_after_a_movement(
    heard: tuple[Notices, Path, list[str]], clock: FakeClock
) -> None:
    notices, file, _ = heard
    progress = Progress(done=3)

    def watch(seconds: float) -> int:
        until = clock() + seconds
        while clock() < until:
            clock.advance(31.0)
            notices.progressed(progress)
        return len(lines(file))

    assert watch(STANDSTILL_SECONDS - 100) == 0
    progress.steps += 1
    assert watch(STANDSTILL_SECONDS - 100) == 0
    assert watch(2 * STANDSTILL_SECONDS) == 1
    assert lines(file)[0].endswith("nothing has moved for 60 minutes, 3 of 24 runs done: accelsweep status mine")
    progress.done += 1
    assert watch(2 * STANDSTILL_SECONDS) == 2


def test_the_end_is_told_with_the_headline(tmp_path: Path) -> None:
    from accelsweep.analysis.analyse_sweep import analyse_folder

    folder, file = build_example_sweep(tmp_path), tmp_path / "heard.txt"
    analyse_folder(folder).write(folder.findings)
    Notices(folder, [Target(f"command: cat >> {file}")], pytest.fail).ended(EXIT_OK)
    [line] = lines(file)
    assert line.startswith("accelsweep example: ended, 21 of 24 runs settled. ")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AccelsweepError("the disk is full"), "ended with an error: the disk is full"),
        (ValueError("no"), "ended with an error: ValueError: no"),
        (KeyboardInterrupt(), "interrupted: accelsweep status mine"),
    ],
)
def test_an_end_with_an_error_is_told_too(
    heard: tuple[Notices, Path, list[str]], error: BaseException, words: str
) -> None:
    notices, file, _ = heard
    notices.failed(error)
    assert lines(file) == [f"accelsweep mine: {words}"]


def test_without_a_target_nothing_is_looked_at(tmp_path: Path, clock: FakeClock) -> None:
    class Untouched(Progress):
        def activity(self) -> Any:
            pytest.fail("looked")

    notices = Notices(SweepFolder(tmp_path, "mine"), [], pytest.fail, clock)
    clock.advance(1e6)
    notices.progressed(Untouched(failure="crashed"))
    notices.ended(EXIT_OK)
    assert list(tmp_path.iterdir()) == []

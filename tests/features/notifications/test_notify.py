"""Notifications to real commands and a real web server: when they are sent, and what they must not reveal."""

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
from fake_clock import FakeClock
from polling import until

from accelsweep.errors import EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, InputError
from accelsweep.features.notifications import notify
from accelsweep.features.notifications.notify import STALL_SECONDS, Message, Notifier, Target, redacted
from accelsweep.records.layout import SweepFolder

MESSAGE = Message("end", "accelsweep mine", "it has ended; $(touch hacked) `touch hacked`")


@dataclass
class Progress:
    """The progress of a sweep of 24 runs."""

    done: int = 0
    total: int = 24
    failure: str | None = None
    steps: int = 0

    def activity(self) -> Any:
        return self.done, self.steps


@dataclass
class Server:
    """A web server that stores what is posted to it and answers with `status`."""

    port: int = 0
    status: int = 200
    posted: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        server.port = http.server_port
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield server
        http.shutdown()
        thread.join()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def notifier(tmp_path: Path, clock: FakeClock) -> tuple[Notifier, Path, list[str]]:
    """A notifier to a command that appends to a file, the file, and the errors of failed deliveries."""
    file, errors = tmp_path / "notifications.txt", list[str]()
    folder = SweepFolder(tmp_path, "mine")
    target = Target(f"command: cat >> {file}")
    return Notifier(folder, [target], errors.append, clock), file, errors


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_command_gets_the_message_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "notifications.txt"
    variables = "$ACCELSWEEP_NOTIFICATION_EVENT|$ACCELSWEEP_NOTIFICATION"
    command = f'command: cd {tmp_path}; cat > {file}; echo "{variables}" >> {file}'
    assert Target(command).send(MESSAGE) is None
    line = f"{MESSAGE.title}: {MESSAGE.text}"
    assert lines(file) == [line, f"end|{line}"]
    assert not (tmp_path / "hacked").exists()


def test_a_web_server_gets_the_message(server: Server) -> None:
    target = Target(f"json://127.0.0.1:{server.port}/hook")
    target.check()
    assert server.posted == [], "a check sends nothing"
    assert target.send(MESSAGE) is None
    assert [(one["title"], one["message"]) for one in server.posted] == [(MESSAGE.title, MESSAGE.text)]


def test_a_failed_delivery_is_reported_without_the_address(server: Server, tmp_path: Path, clock: FakeClock) -> None:
    server.status = 500
    address = f"json://somebody:hunter2@127.0.0.1:{server.port}/T0K3N/path"
    errors: list[str] = []
    Notifier(SweepFolder(tmp_path, "mine"), [Target(address)], errors.append, clock).ended(EXIT_INTERRUPTED)
    assert len(server.posted) == 1
    [line] = errors
    assert line.startswith("the notification to json://*** failed: it exited with code 1")
    for secret in ("somebody", "hunter2", "T0K3N", "path", str(server.port)):
        assert secret not in line


def test_a_failing_command_is_reported_with_its_last_line(tmp_path: Path, clock: FakeClock) -> None:
    errors: list[str] = []
    command = Target("command:sh -c 'echo no mailbox at https://me:hunter2@host >&2; exit 7'")
    Notifier(SweepFolder(tmp_path, "mine"), [command], errors.append, clock).ended(EXIT_INTERRUPTED)
    assert errors == ["the notification to command:sh failed: it exited with code 7: no mailbox at https://***@host"]


@pytest.mark.real
def test_a_hanging_command_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 5.0)  # a shell may need a second to start
    error = Target(f"command: sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' & wait").send(MESSAGE)
    assert error == "it took longer than 5 s"
    child = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(child))  # signals are delivered asynchronously


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("command: ", "contains no command"),
        ("nonsense://T0K3N/x", "nonsense://\\*\\*\\*: .*does not support this service"),
        ("T0K3N", "--notify \\*\\*\\*: .*does not support this service"),
    ],
)
def test_an_invalid_address_is_rejected_at_once(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as rejected:
        Target(address).check()
    assert "T0K3N" not in str(rejected.value)


def test_without_apprise_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apprise.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(InputError, match="pip install 'accelsweep\\[notify\\]'"):
        Target("json://127.0.0.1/hook").check()
    Target("command: true").check()


def test_every_part_of_an_address_is_redacted() -> None:
    text = "no route to hooks.example.org for /services/T0K3N?key=abcdef"
    cut = redacted(text, "slack://hooks.example.org/services/T0K3N?key=abcdef")
    assert cut == "no route to *** for /***/***?key=***"


def test_the_first_failure_is_sent_once(notifier: tuple[Notifier, Path, list[str]]) -> None:
    sender, file, errors = notifier
    progress = Progress()
    sender.progressed(progress)
    assert lines(file) == []
    progress.failure = "batch_size=32, repeat 0  crashed: \x1b[2Jno https://me:hunter2@host"
    sender.progressed(progress)
    sender.progressed(progress)
    [line] = lines(file)
    assert line.startswith("accelsweep mine: the first run failed: batch_size=32, repeat 0  crashed: ")
    assert "\x1b" not in line
    assert "hunter2" not in line
    assert errors == []


def test_a_stall_is_sent_once_and_again_after_progress(
    notifier: tuple[Notifier, Path, list[str]], clock: FakeClock
) -> None:
    sender, file, _ = notifier
    progress = Progress(done=3)

    def watch(seconds: float) -> int:
        until = clock() + seconds
        while clock() < until:
            clock.advance(31.0)
            sender.progressed(progress)
        return len(lines(file))

    assert watch(STALL_SECONDS - 100) == 0
    progress.steps += 1
    assert watch(STALL_SECONDS - 100) == 0
    assert watch(2 * STALL_SECONDS) == 1
    assert lines(file)[0].endswith("no progress for 60 minutes, 3 of 24 runs done: accelsweep status mine")
    progress.done += 1
    assert watch(2 * STALL_SECONDS) == 2


def test_the_end_is_sent_with_the_headline(tmp_path: Path) -> None:
    from accelsweep.analysis.analyse_sweep import analyse_folder

    folder, file = build_example_sweep(tmp_path), tmp_path / "notifications.txt"
    analyse_folder(folder).write(folder.findings)
    Notifier(folder, [Target(f"command: cat >> {file}")], pytest.fail).ended(EXIT_OK)
    [line] = lines(file)
    assert line.startswith("accelsweep example: ended, 21 of 24 runs settled. ")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (AccelsweepError("the disk is full"), "ended with an error: the disk is full"),
        (ValueError("no"), "ended with an error: ValueError: no"),
        (KeyboardInterrupt(), "interrupted: accelsweep status mine"),
    ],
)
def test_an_error_is_sent(notifier: tuple[Notifier, Path, list[str]], error: BaseException, text: str) -> None:
    sender, file, _ = notifier
    sender.failed(error)
    assert lines(file) == [f"accelsweep mine: {text}"]


def test_without_a_target_nothing_is_read(tmp_path: Path, clock: FakeClock) -> None:
    class Untouched(Progress):
        def activity(self) -> Any:
            pytest.fail("progress was read")

    sender = Notifier(SweepFolder(tmp_path, "mine"), [], pytest.fail, clock)
    clock.advance(1e6)
    sender.progressed(Untouched(failure="crashed"))
    sender.ended(EXIT_OK)
    assert list(tmp_path.iterdir()) == []

"""The process that forks the ranks of runs in another environment."""

from __future__ import annotations

import socket
import subprocess
import sys

from accelsweep.ipc import send, send_descriptors

SERVE = "from accelsweep.worker.project_fork_server import serve_ranks; serve_ranks()"


def test_an_executor_that_ends_before_it_has_read_the_answer_ends_the_process_without_a_traceback() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen([sys.executable, "-c", SERVE], stdin=theirs, stderr=subprocess.PIPE, text=True)
    send_descriptors(ours, [2])
    send(ours, {"environments": []})
    assert ours.recv(1, socket.MSG_PEEK), "the answer has arrived"
    ours.close()
    _, errors = server.communicate(timeout=60)
    assert (server.returncode, errors) == (0, "")

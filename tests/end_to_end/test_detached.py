"""A detached driver on one machine: in tmux, and in a systemd user unit."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from home import Home
from polling import PATIENCE_SECONDS, until
from user_repository import MODULE, repository

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

SECRET = "T0K3N"
WORDS = "+env.WORDS='two  words; $HOME'"

MINE = """\
import time
from accelsweep.workloads.image_models import SmallCNN


class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(0.3)
        return super().training_step(batch, batch_index)
"""


def shown_in_processes(word: str) -> list[str]:
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if word in line]


@pytest.mark.long  # tests/features/detach starts sessions and reads files; only here a driver runs in one
@pytest.mark.real
def test_a_detached_head_measures_while_nobody_watches_and_its_words_are_there_for_who_asks(home: Home) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: tests/install-system.sh installs it")
    home.module("mine", MINE)
    folder = SweepFolder(home.path, "tiny")
    told = home.path / "told.txt"
    notify = ("--notify", f"command: cat >> {told}; : {SECRET}")
    arguments = ("run", "experiment=tiny", "repeats=1", "model._target_=mine.Slow", WORDS)
    left = home.accelsweep(*arguments, *notify, "--detach")
    assert left.returncode == 0, left.stdout
    assert "accelsweep attach tiny" in left.stdout
    assert stat.S_IMODE(folder.driver_file("order").stat().st_mode) == 0o600
    assert shown_in_processes("features.detach.driver")
    assert shown_in_processes(SECRET) == []

    second = home.accelsweep(*arguments)
    assert second.returncode == 1, second.stdout
    assert "already being run by process" in second.stdout
    assert "tmux session" in home.accelsweep("status", "tiny").stdout

    watching = home.start("attach", "tiny")
    assert watching.stdout is not None
    assert "tiny" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    said, _ = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 130
    assert "the driver keeps running" in said
    assert shown_in_processes("features.detach.driver")

    ended = home.accelsweep("attach", "tiny")
    assert ended.returncode == 0, ended.stdout
    assert "[2/2]" in ended.stdout
    assert "reports/tiny/index.html" in ended.stdout
    assert WORDS in Manifest.read(folder.manifest).overrides
    assert not folder.driver_file("order").exists()
    assert "ended, 2 of 2 runs settled" in told.read_text()
    assert [path for path in folder.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []


@pytest.mark.long  # features/detach/test_command.py has the rules; only here such drivers live, and attach is their end
@pytest.mark.real
def test_attach_ends_as_ab_and_claims_end_in_a_terminal(tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: tests/install-system.sh installs it")
    home = Home(tmp_path / "home", ACCELSWEEP_LEASES=str(tmp_path / "leases"))
    slower = MODULE.replace("return self.layer", "import time; time.sleep(0.02)\n        return self.layer")
    repository(home.path, {"toy.py": slower})
    command = ("ab", "HEAD~1", ".", "experiment=toy", "repeats=3", "--fail-if", "slower:50%")
    try:
        left = home.accelsweep(*command, "--detach")
        assert left.returncode == 0, left.stdout
        (home.path / "toy.py").write_text(MODULE)  # the driver has its own copy
        ended = home.accelsweep("attach", "ab-toy")
        judged = "slower:50%: failed by" in ended.stdout  # else others keep this machine busy, and the code says so
        assert judged or "slower:50%: 1 of 1 comparison could not be judged" in ended.stdout, ended.stdout
        assert ended.returncode == (3 if judged else 1)
        left = home.accelsweep("claims", "cluster", "--minutes", "0", "--detach")
        assert left.returncode == 0, left.stdout
        ended = home.accelsweep("attach", "claims")
        assert ended.returncode == 0, ended.stdout
        assert "reports/claims/" in ended.stdout
        assert "accelsweep attach claims" in home.accelsweep("status").stdout
    finally:
        home.end_processes()


UNDER_SYSTEMD = """\
mount -t tmpfs none /run && mkdir -p /run/systemd/system
/lib/systemd/systemd --user >"$XDG_RUNTIME_DIR/log" 2>&1 & manager=$!
for i in $(seq 100); do systemctl --user is-system-running --quiet && break; sleep .1; done
"$0" -m accelsweep run "$@" --detach && "$0" -m accelsweep attach tiny
code=$?
kill $manager; wait $manager
exit $code
"""


@pytest.mark.long  # features/detach has the command; a systemd of one's own has its own namespaces
@pytest.mark.real
def test_a_head_goes_to_the_users_systemd_where_there_is_one(home: Home) -> None:
    if os.getuid() != 0 or not Path("/lib/systemd/systemd").exists():
        pytest.skip("a systemd of our own needs root and Debian's package systemd")
    runtime = home.path / "runtime"
    runtime.mkdir(mode=0o700)
    ended = subprocess.run(
        ["unshare", "-m", "bash", "-c", UNDER_SYSTEMD, sys.executable, "experiment=tiny", "repeats=1", WORDS],
        cwd=home.path,
        env=home.environment | {"XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "in the background: systemd user unit" in ended.stdout
    assert "[2/2]" in ended.stdout
    until(lambda: not shown_in_processes(str(home.path)), 60)

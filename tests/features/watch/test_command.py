"""`accelsweep watch`: the user's command stays its own, and each training in it is compared."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

from accelsweep.errors import InputError
from accelsweep.features.watch import command
from accelsweep.features.watch.records import expectation_of

pytestmark = pytest.mark.real

TRAIN = Path(__file__).parents[2] / "projects/plain_script/train.py"
COMPARED = re.compile(
    r"accelsweep: [\d,]+ % of what was measured on example-host on 2026-01-05 \(.*? samples/s, (.*?)\)"
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with the example sweep."""
    build_example_sweep(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def slow_script(tmp_path):
    """A training whose 250 steps take four seconds, most of which it sleeps: three pass before it is compared."""
    path = tmp_path / "train.py"
    text = TRAIN.read_text()
    path.write_text(f"import time\n{text.replace('optimizer.step()', 'optimizer.step(); time.sleep(0.016)')}")
    return str(path)


def watch(home, words, *options, **variables):
    """Return the finished command, watched; `example` is the sweep unless `options` say so."""
    words = [sys.executable, "-m", "accelsweep", "watch", "example", *options, "--", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=120)


def python(code):
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ("--epochs 4 --batch-size 32", "batch 32, 32-bit, 1 device"),
        ("--epochs 16 --batch-size 128 --bf16", "batch 128, bf16-mixed, 1 device"),
    ],
)
def test_a_script_is_compared_with_the_setting_that_it_shows(home, slow_script, words, setting):
    done = watch(home, [sys.executable, slow_script, *shlex.split(words)], "--every", "0.05")
    assert done.returncode == 0, done.stderr
    found = COMPARED.findall(done.stderr)
    assert found, done.stderr
    assert {*found} == {setting}
    assert "accelsweep: the whole training: " in done.stderr
    assert "epoch 3: accuracy" in done.stdout


def test_of_two_ranks_one_speaks(home, slow_script):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = watch(home, [*torchrun, slow_script, "--epochs", "8"], "--every", "0.05", GLOO_SOCKET_IFNAME="lo")
    assert done.returncode == 0, done.stderr
    assert {*COMPARED.findall(done.stderr)} == {"batch 32, 32-bit, 2 devices"}
    assert done.stderr.count("the whole training") == 1


def test_a_setting_that_was_not_measured_is_said_and_the_training_goes_on(home):
    done = watch(home, [sys.executable, str(TRAIN), "--epochs", "3", "--batch-size", "8"])
    assert done.returncode == 0
    assert "this training uses batch 8, 32-true, 1 rank on cpu, which example has not measured" in done.stderr
    assert "epoch 2" in done.stdout


def test_a_failing_script_keeps_its_exit_code_and_its_words(home):
    done = watch(home, python("import sys; print('out'); sys.exit('broken')"))
    assert (done.returncode, done.stdout) == (1, "out\n")
    assert done.stderr.splitlines()[1:] == ["broken"], "nothing else is said where nothing trains"


def test_a_command_that_writes_into_a_closed_pipe_ends_as_it_would_alone(home):
    done = watch(home, ["sh", "-c", "yes | head -1; yes 2>/dev/null | true; trap - PIPE; kill -PIPE $$"])
    assert (done.stdout, done.returncode) == ("y\n", -signal.SIGPIPE)


def test_a_sweep_with_too_many_settings_asks_for_one(home, monkeypatch):
    monkeypatch.setattr(command, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="example has too many settings to compare with all: name one with --setting"):
        command.watched_environment(expectation_of(home / "sweeps/example"))


def test_a_command_that_is_no_python_runs_as_it_is(home):
    assert watch(home, ["sh", "-c", "exit 7"]).returncode == 7


def test_a_site_of_the_user_is_still_customised(home, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import builtins; builtins.mine = 42")
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert watch(home, python("print(mine)"), PYTHONPATH=path).stdout == "42\n"


def test_a_training_goes_on_where_watching_fails(home):
    spoil = "import os; os.environ['ACCELSWEEP_WATCH'] = '{'; import torch; print(torch.optim.SGD.__name__)"
    done = watch(home, python(spoil))
    assert (done.returncode, done.stdout) == (0, "SGD\n")
    assert "accelsweep: this training is not compared: JSONDecodeError" in done.stderr


@pytest.mark.parametrize(
    ("options", "words", "sentence"),
    [
        ((), ("no-such-program",), "cannot start 'no-such-program': No such file or directory: type the command after"),
        (("--setting", "batch_size=33"), ("true",), "'batch_size=33' matches no runnable setting"),
        (("--every", "0"), ("true",), "0 minutes between two comparisons are too few"),
    ],
)
def test_wrong_input_ends_before_the_command_begins(home, options, words, sentence):
    done = watch(home, words, *options)
    assert done.returncode == 2
    assert sentence in done.stderr

"""The gate of `ab` decides the exit code and prints its sentence, in the foreground and in the background."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.versions import Version
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import SweepExit
from accelsweep.features.ab import command
from accelsweep.features.ab.command import VersionsRequest, compare_versions
from accelsweep.features.detach.driver import run_command
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import SweepFolder

BLOCKS = 5
NAMES = ("main", "HEAD")
SHAKE = (0.0, 0.003, -0.002, 0.001, -0.003)


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function: has the measuring end with a code, after it found HEAD at a rate beside main's 100."""

    def ended(rate: float, code: int) -> None:
        compared = [Version(name=name, kind="commit", digest=sha256_text(name)[:40]) for name in NAMES]
        settings = [{"version": name} for name in NAMES]
        manifest = make_manifest(settings, BLOCKS).model_copy(update={"compared": tuple(compared)})
        runs = [
            make_run(
                settings[index],
                block,
                each * (1 + SHAKE[(block + index) % BLOCKS]),
                config={"version": compared[index].identity},
            )
            for block in range(BLOCKS)
            for index, each in enumerate((100.0, rate))
        ]
        folder = SweepFolder(tmp_path, "mine")
        manifest.write(folder.manifest)
        analyse(runs, manifest).write(folder.findings)
        monkeypatch.setattr(command, "run_sweep", lambda _home, _request: SweepExit("mine", code))

    return ended


@pytest.mark.parametrize(
    ("rate", "code", "fail_if", "wanted", "says"),
    [
        (80.0, 0, "slower:2%", 3, "slower:2%: failed by "),
        (120.0, 1, "slower:2%", 0, "slower:2%: shown absent in the only comparison"),
        (80.0, 1, None, 1, ""),
        (80.0, 130, "slower:2%", 130, ""),
    ],
)
@pytest.mark.parametrize("command", [compare_versions, run_command])
def test_the_gate_decides_unless_the_command_was_interrupted(
    command, rate: float, code: int, fail_if: str | None, wanted: int, says: str, ends, tmp_path: Path, capsys
) -> None:
    ends(rate, code)
    asked = Request(name="mine", extension=VersionsRequest(names=NAMES, fail_if=fail_if))
    assert command(tmp_path, asked) == wanted
    shown = capsys.readouterr().out
    assert shown.startswith(says)
    assert bool(shown) is bool(says)

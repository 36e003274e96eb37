"""Two environments side by side: each run is started with its own interpreter, and says what was installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment
from home import Home
from shared_fork_server import beside_the_server
from user_repository import FILES, MODULE, write

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records

pytestmark = pytest.mark.real


@pytest.mark.long  # features/ab/test_environments.py looks at environments, test_ab.py at versions; only here both meet
def test_each_run_has_the_environment_of_its_version(tmp_path: Path, leases: str) -> None:
    home = Home(tmp_path, ACCELSWEEP_LEASES=leases, **beside_the_server())
    write(tmp_path, {**FILES, "toy.py": f"import sys\nprint('prefix', sys.prefix)\n{MODULE}"})
    pythons = [environment(tmp_path / name, f"only-{name}") for name in ("old", "new")]
    given = [word for python in pythons for word in ("--python", python)]
    result = home.accelsweep("ab", *given, "experiment=toy", "repeats=1")
    assert result.returncode == 0, result.stdout
    folder = SweepFolder(tmp_path, "ab-toy")
    first, second = Findings.read(folder.findings).settings
    assert first.verdict is Verdict.baseline
    assert second.rate is not None
    assert second.speedup is not None, second.verdict_reason
    for record in readable_records(folder, Manifest.read(folder.manifest).wanted_runs()):
        prefix = str(Path(record.axes["version"]).parents[1])
        assert f"prefix {prefix}\n" in (folder.run(record.run) / "run.log").read_text()

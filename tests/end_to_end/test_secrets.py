"""No secret of the environment is written anywhere, and none in an address leaves the plan's own files."""

import pytest
from unusual_home import CANARY, PASSWORD, TOKEN, records_by_case

from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


def holding(home, secret):
    """The files below the home that hold the secret, apart from the user's own."""
    own = {home.path / "leaky.py"}
    files = [path for path in home.path.rglob("*") if path.is_file() and path not in own and path.suffix != ".pyc"]
    return sorted(str(path.relative_to(home.path)) for path in files if secret.encode() in path.read_bytes())


def test_no_secret_reaches_a_record_a_log_mlflow_or_the_report(unusual):
    home, ended = unusual
    assert holding(home, CANARY) == []
    crashed = records_by_case(home)["leaky"]
    assert crashed.outcome is Outcome.crashed
    assert "https://host/data?token=***&x=1 and s3://***@bucket" in crashed.reason
    log = (SweepFolder(home.path, "unusual").run(crashed.run) / "run.log").read_text()
    assert "connecting to postgresql://***@db/labels" in log
    assert crashed.config.raw["note"] == "https://***@host/data?token=***"
    assert crashed.config.raw["model"]["mirror"] == "s3://***@one"
    for secret in (PASSWORD, TOKEN):
        assert secret not in ended.stdout
        needed = [name for name in holding(home, secret) if "/blocks/" in name or name.endswith("/run-spec.json")]
        assert holding(home, secret) == needed, "only what a run needs may hold it"
        assert needed

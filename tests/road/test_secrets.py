"""No secret of the environment is written anywhere, and none in an address leaves the plan's own files."""

import pytest

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.state.folders import SweepFolder

pytestmark = pytest.mark.real

CANARY = "canary7f3a91"
PASSWORD = "hunter2b6c4"
TOKEN = "tok9e1d77"

LEAKY = f"""\
from accelsweep.workloads.models import SmallCNN


class Leaky(SmallCNN):
    def training_step(self, batch, batch_index):
        print("connecting to postgresql://me:{PASSWORD}@db/labels", flush=True)
        raise RuntimeError("no answer from https://host/data?token={TOKEN}&x=1 and s3://me:{PASSWORD}@bucket")
"""


def holding(home, secret):
    """The files below the home that hold the secret, apart from the user's own."""
    own = {home.path / "leaky.py"}
    files = [path for path in home.path.rglob("*") if path.is_file() and path not in own and path.suffix != ".pyc"]
    return sorted(str(path.relative_to(home.path)) for path in files if secret.encode() in path.read_bytes())


def test_no_secret_reaches_a_record_a_log_mlflow_or_the_report(home):
    home.module("leaky", LEAKY)
    home.environment |= {"AWS_SECRET_ACCESS_KEY": CANARY, "MY_SETTING": CANARY, "MLFLOW_TRACKING_TOKEN": CANARY}
    address = f"https://me:{PASSWORD}@host/data?token={TOKEN}"
    swept = f"s3://me:{PASSWORD}@one,s3://me:{PASSWORD}@two"
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", f'+note="{address}"', "limits.retries=0",
        "model._target_=accelsweep.workloads.models.SmallCNN,leaky.Leaky", f"+mirror={swept}", "+env.MIRROR=${mirror}",
        f"exclude=[{{when:{{mirror:'s3://me:{PASSWORD}@two',model._target_:leaky.Leaky}},because:one_is_enough}}]",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    folder = SweepFolder(home.path, "tiny")
    records = [Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()]
    assert sorted(record.outcome for record in records) == [Outcome.crashed, *[Outcome.measured] * 2], result.stdout
    assert holding(home, CANARY) == []
    (crashed,) = [record for record in records if record.outcome is Outcome.crashed]
    assert "https://host/data?token=***&x=1 and s3://***@bucket" in crashed.reason
    log = (folder.run(crashed.run) / "run.log").read_text()
    assert "connecting to postgresql://***@db/labels" in log
    assert crashed.config.raw["note"] == "https://***@host/data?token=***"
    for secret in (PASSWORD, TOKEN):
        assert secret not in result.stdout
        needed = [name for name in holding(home, secret) if "/blocks/" in name or name.endswith("/run-spec.json")]
        assert holding(home, secret) == needed, "only what a run needs may hold it"
        assert needed

"""Whatever stands in a config, it comes through block file, record and parquet unchanged."""

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tiny_sweep import CONFIG, plan_sweep

from accelsweep.analysis.collect import collect
from accelsweep.config.setting import PLAN_KEYS, setting_name
from accelsweep.executor.attempt_outcome import Conclusion
from accelsweep.executor.recording import Provenance, write_record
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json
from accelsweep.records.plan import Block
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record
from accelsweep.redaction import without_secrets
from accelsweep.results import Fingerprint, Outcome, RankResult
from accelsweep.worker.run_spec import RunSpec

pytestmark = pytest.mark.heavy

numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.text(min_size=1).filter(lambda name: name not in PLAN_KEYS | set(CONFIG))
settings = st.lists(st.dictionaries(names, values, min_size=1, max_size=3), min_size=1, max_size=3)
metrics = st.dictionaries(st.text(min_size=1), numbers, max_size=4)
endings = st.sampled_from([one for one in Outcome if one not in (Outcome.decided, Outcome.not_run)])


def written(folder, block, run, outcome, reason, found):
    """Return the record that an executor would write for the run, as it is read back."""
    spec = RunSpec(
        sweep=folder.name, block=block.name, run=run, planned_position=0, position=0, attempt=1,
        config=block.configs[run.setting], axes=block.axes[run.setting], world_size=1,
        attempt_folder=str(folder.run(run.name) / "attempts" / "1"),
    )  # fmt: skip
    spec.write()
    metrics_found = {name: Metric(value=value, unit="1") for name, value in found.items()}
    result = RankResult(rank=0, outcome=outcome, reason=reason, error_kind="none", metrics=metrics_found)
    provenance = Provenance("fork", "then", Fingerprint(hardware={}, software={}, builds={}, sources={}), {})
    spec = RunSpec.read(spec.file())
    run_folder = RunFolder(folder.run(run.name), run.name)
    run_folder.begin("host", "then")
    write_record(run_folder, spec, block.configs[run.setting], Conclusion(outcome, reason), {0: result}, provenance)
    run_folder.promote(spec.attempt)
    return Record.read(folder.record(run.name))


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settings, metrics, endings, st.text(min_size=1))
def test_configs_names_and_numbers_come_through_the_whole_road(changes, found, outcome, words):
    reason = None if outcome is Outcome.measured else words
    assume(len({setting_name({**CONFIG, **one}) for one in changes}) == len(changes))
    with tempfile.TemporaryDirectory() as home:
        folder, file = plan_sweep(Path(home), changes)
        block = Block.read(file)
        wanted = [{**CONFIG, **one} for one in changes]
        assert {name: config.raw for name, config in block.configs.items()} == {
            setting_name(one): one for one in wanted
        }
        assert all(name == setting_name(config.raw) for name, config in block.configs.items())
        records = [written(folder, block, run, outcome, reason, found) for run in block.runs]
        rows = collect(folder)
        table = pq.read_table(folder.records).to_pylist()
    for row, run, record, change in zip(table, rows, records, changes, strict=True):
        assert (run.run, run.config, run.axes) == (record.run, record.config, record.axes)
        assert record.axes == without_secrets(change)
        assert json.loads(row["config"]) == record.config.raw == without_secrets({**CONFIG, **change})
        assert (row["run"], row["outcome"]) == (record.run, outcome)
        assert row["reason"] == record.reason
        assert {name: metric["value"] for name, metric in json.loads(row["metrics"]).items()} == found
        for key, value in record.axes.items():
            setting = row[f"axis.{key}"]
            assert setting == value or setting == canonical_json(value)

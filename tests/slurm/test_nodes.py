"""Runs on several nodes: one srun with one process per node, gathered through the shared folder."""

import pandas
import pytest
from slurm_home import first_rank

from accelsweep.results import Outcome

pytestmark = pytest.mark.slurm

TWO_NODES = ("num_nodes=2", "devices=2", "batch_size=16")

STUCK = """\
import time
from accelsweep.workloads.image_models import SmallCNN


class Stuck(SmallCNN):
    def training_step(self, batch, batch_index):
        while batch_index == 5:
            time.sleep(1)
        return super().training_step(batch, batch_index)
"""


@pytest.mark.long  # executor/test_multi_node.py joins the ranks of two nodes; only here srun starts them
@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_one_sweep_compares_one_node_with_two(home, loop):
    """The ranks of both loops are started, found and gathered by the same code; only Lightning knows of nodes."""
    window = ("measure.min_seconds=1", "measure.max_steps=100000")  # long enough for a few readings
    output = home.run("num_nodes=1,2", "devices=2", "batch_size=16", f"loop={loop}", *window)
    assert "[2/2]" in output  # the baseline has one run: in the block of the other
    records = home.records()
    assert {record.outcome for record in records.values()} == {Outcome.measured}
    assert {(record.effective.num_nodes, record.effective.world_size) for record in records.values()} == {
        (1, 2),
        (2, 4),
    }
    for run, record in records.items():
        steps = pandas.read_parquet(home.folder.steps(run))
        assert set(steps["rank"]) == set(range(record.effective.world_size))
        assert record.effective.launcher == ("fork" if record.effective.num_nodes == 1 else "srun")
        sampled = pandas.read_parquet(home.folder.series(run)).columns
        assert {column for column in sampled if column.endswith("_rss_bytes")} == {
            f"rank{rank}_rss_bytes" for rank in range(record.effective.world_size)
        }
        assert ("host1_cpu_cores" in sampled) is (record.effective.num_nodes == 2)
        assert record.metrics["rank_rss_bytes_mean"].value > 1e7
    (wide,) = [told for told in map(home.told, home.submitted()) if "NumNodes=2" in told]
    assert "rule_block_across_nodes" in wide  # with the baseline, which needs one node only
    assert "gres:gpu:h100:2" in wide  # TresPerJob: one each


@pytest.mark.long  # executor/test_multi_node.py ends ranks of two nodes; only here they are steps of a job
@pytest.mark.parametrize(
    ("node_dies", "reason"),
    [(True, "was lost: node 1 on gpu2"), (False, "rank 2 was ended by SIGKILL")],
)
def test_a_node_or_a_rank_that_dies_is_a_crash_with_its_reason(home, node_dies, reason):
    arguments = (*TWO_NODES, "measure.min_seconds=6", "limits.retries=0")
    driver = home.start(*arguments)
    run = home.in_a_run().run
    home.wait_for((home.folder.run(run) / "attempts" / "1" / "progress").exists, "the first step", 90)
    node = home.across_nodes()["1"]
    (node if node_dies else first_rank(node)).kill()
    home.finished(driver, 1)
    (record,) = home.records().values()
    assert record.outcome is Outcome.crashed
    assert reason in record.reason, record.reason
    home.run(*arguments)
    (record,) = home.records().values()
    assert (record.outcome, record.attempt) == (Outcome.measured, 2)
    assert not home.across_nodes()


@pytest.mark.long  # executor/test_multi_node.py fakes srun; here the real one brings the stacks into the log
def test_the_log_of_a_silent_run_has_the_stacks_of_both_nodes(home):
    (home.path / "stuck.py").write_text(STUCK)
    driver = home.start(*TWO_NODES, "model._target_=stuck.Stuck", "limits.silence_seconds=5", "limits.retries=0")
    home.finished(driver, 1)
    (record,) = home.records().values()
    assert record.outcome is Outcome.timed_out
    _, *stacks = (home.folder.run(record.run) / "run.log").read_text().split("accelsweep: stacks of ")
    assert {"rank 0", "rank 1", "rank 2", "rank 3"} <= {one.partition(",")[0] for one in stacks}
    for one in stacks:
        assert one.startswith("a child") or "stuck.py" in one
    assert not home.across_nodes()


@pytest.mark.long  # test_any_scheduler.py ends jobs of one node; only here a cancelled one had two
def test_a_cancelled_job_of_two_nodes_goes_on_in_the_next(home):
    driver = home.start(*TWO_NODES, "measure.min_seconds=6")
    owner = home.in_a_run()
    home.wait_for((home.folder.run(owner.run) / "attempts" / "1" / "progress").exists, "the first step", 90)
    home.slurm("scancel", owner.job)
    home.finished(driver)
    (record,) = home.records().values()
    assert (record.outcome, record.attempt) == (Outcome.measured, 2)
    assert len(home.submitted()) == 2
    assert not home.across_nodes()

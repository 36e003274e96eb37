"""The list of metrics is complete: every metric of the source is in it, and nothing else."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from accelsweep.metrics import MEMORY_METRICS, SAMPLED, STATISTICS, Metric, metrics
from accelsweep.results import PARTS

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted(ROOT.glob("reports/examples/*/sweeps/*/runs/*/record.json"))


@pytest.fixture
def trees(generators):
    """The parsed source without the list itself."""
    import sources

    return [tree for path, tree in sources.trees().items() if path.stem != "metrics"]


def makers(trees):
    """Names of the functions that return a Metric, and of the class itself."""
    functions = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {"Metric"} | {found.name for found in functions if found.returns and ast.unparse(found.returns) == "Metric"}


def named_in_the_source(trees):
    """Every name under which the source puts a Metric into a dictionary."""
    known = makers(trees)
    for tree in trees:
        for node in ast.walk(tree):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            for key, value in pairs:
                made = isinstance(value, ast.Call) and getattr(value.func, "id", None) in known
                if made and isinstance(key, ast.Constant):
                    yield key.value


def test_every_metric_of_the_source_is_listed(trees):
    named = set(named_in_the_source(trees))
    assert {"samples_per_second", "best_quality", "host_pss_bytes"} <= named
    assert named - set(metrics()) == set()


def test_every_listed_metric_is_in_the_source(trees):
    constants = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    shares = {f"{part}_share" for part in PARTS}
    sampled = {f"{quantity}_{statistic}" for quantity in SAMPLED for statistic in STATISTICS}
    assert [name for name in metrics() if name not in constants | shares | sampled] == []


def test_memory_metrics_are_listed_in_order_of_preference():
    assert [name for name in metrics() if name in MEMORY_METRICS] == list(MEMORY_METRICS)


@pytest.mark.parametrize("record", RECORDS[::7], ids=lambda path: path.parent.name)
def test_the_metrics_of_a_real_record_are_listed_with_their_units(record):
    body = json.loads(record.read_text())
    measured = body.get("metrics") or body["body"]["metrics"]
    assert "samples_per_second" in measured
    for name, metric in measured.items():
        if not name.startswith("logged."):
            assert metrics()[name].unit in (metric["unit"], "per config")


def test_a_metric_without_a_value_needs_a_reason():
    with pytest.raises(ValueError, match="either a value or the reason"):
        Metric(value=None, unit="J")


def test_a_metric_with_a_value_has_no_reason_to_lack_one():
    with pytest.raises(ValueError, match="either a value or the reason"):
        Metric(value=1.0, unit="J", reason="unavailable")

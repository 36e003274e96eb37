"""Every full-size workload can be planned for a machine with one GPU, even on a machine without one."""

from __future__ import annotations

from pathlib import Path

import cases
import pytest
from calibration import window
from place import Place
from robustness import SEARCH

from accelsweep.planning.plan import make_plan

pytestmark = pytest.mark.heavy

GPU = (
    "site.probe=false",
    "site.inventory=[{accelerator: cuda, model: NVIDIA H200, count: 1, memory_bytes: 150000000000}]",
)
FULL = {
    "truth": cases.truth(small=False),
    "kernels": cases.kernels(small=False),
    "others": {
        "harness": cases.harness(small=False),
        "known": cases.known(0.1, "/tmp/mark"),
        "too_large": cases.too_large(small=False),
        "compiled": cases.compiled(),
    },
}


@pytest.mark.parametrize("group", FULL)
def test_every_case_is_planned_for_a_gpu_and_supported(group: str, tmp_path: Path):
    place = Place(tmp_path, "cuda", small=False)
    place.prepare()
    place.cases(FULL[group])
    names = ",".join(FULL[group])
    plan = make_plan(tmp_path, ["accelerator=cuda", "experiment=cases", f"case={names}", *GPU, *window(place)])
    assert {setting.axes["case"]: setting.unsupported for setting in plan.manifest.settings} == dict.fromkeys(
        FULL[group]
    )


def test_the_search_for_the_largest_batch_is_planned_for_a_gpu(tmp_path: Path):
    place = Place(tmp_path, "cuda", small=False)
    place.prepare()
    place.cases({"searched": cases.largest_batch(small=False) | {"task": "largest_batch"}})
    plan = make_plan(tmp_path, ["accelerator=cuda", *SEARCH, *GPU])
    assert [(setting.config.task, setting.config.batch_size) for setting in plan.settings] == [("largest_batch", 1024)]


def test_a_later_window_replaces_an_earlier_one(tmp_path: Path):
    """Checks lengthen the common window by naming its keys again."""
    place = Place(tmp_path, "cuda", small=False)
    place.prepare()
    place.cases({"known": cases.known(0.1)})
    again = (*window(place), "measure.min_seconds=6")
    plan = make_plan(tmp_path, ["accelerator=cuda", "experiment=cases", "case=known", *GPU, *again])
    assert [setting.config.measure.min_seconds for setting in plan.settings] == [6]

"""A gate fails on what the whole interval supports, and tells a regression shown absent from one that was not found."""

from __future__ import annotations

from types import ModuleType

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.compare_sweeps import Gate, GateState, gated, worst
from accelsweep.config.versions import Version
from accelsweep.json_documents import sha256_text
from accelsweep.records.estimates import Verdict

SLOWER = Gate(Verdict.slower, 0.02)
SHAKE = (0.0, 0.003, -0.002, 0.001, -0.003)


@pytest.fixture
def state_of(simulated: ModuleType):
    """A function: the state of HEAD at each rate beside main's 100, and of all of them."""

    def found(*rates: float | None, blocks: int = 5, gate: Gate = SLOWER, **fields: object):
        names = ["main", *(f"HEAD{index}" for index in range(len(rates)))]
        versions = [Version(name=name, kind="commit", digest=sha256_text(name)[:40]) for name in names]
        cells = [{"version": name} for name in names]
        manifest = simulated.make_manifest(cells, blocks).model_copy(update={"compared": tuple(versions)})
        runs = [
            simulated.make_run(
                cells[index],
                block,
                None if rate is None else rate * (1 + SHAKE[(block + index) % 5]),
                config={"version": versions[index].identity},
                **fields,
            )
            for block in range(blocks)
            for index, rate in enumerate((100.0, *rates))
        ]
        settings = gated(analyse(runs, manifest), manifest.baselines, gate)
        return [one.state for one in settings], worst(settings)

    return found


@pytest.mark.parametrize(
    ("rate", "state"),
    [
        (93.0, GateState.regression),
        (98.0, GateState.none_found),
        (100.0, GateState.shown_absent),
        (120.0, GateState.shown_absent),
        (None, GateState.not_measured),
    ],
)
def test_the_whole_interval_decides(state_of, rate: float | None, state: GateState) -> None:
    assert state_of(rate) == ([state], state)


def test_a_gate_on_faster_looks_to_the_other_side(state_of) -> None:
    gate = Gate(Verdict.faster, 0.02)
    assert state_of(120.0, 93.0, gate=gate)[0] == [GateState.regression, GateState.shown_absent]


def test_the_worst_setting_decides(state_of) -> None:
    assert state_of(93.0, None, 100.0)[1] is GateState.regression
    assert state_of(100.0, None)[1] is GateState.not_measured
    assert state_of(100.0, 98.0)[1] is GateState.none_found


def test_disturbed_runs_and_too_few_blocks_pass_nothing_and_fail_nothing(state_of) -> None:
    busy = {"code": "busy_cpu", "message": "busy", "remedy": "stop"}
    assert state_of(80.0, doubts=[busy])[1] is GateState.not_measured
    assert state_of(80.0, blocks=2)[1] is GateState.not_measured
    assert worst(()) is GateState.not_measured

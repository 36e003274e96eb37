"""What a profile's events say: whose time it was, by operator and by module."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from accelsweep.features.profile.profiler import MODULE_MARK, mark_modules, modules, operators
from accelsweep.features.profile.step_profile import PYTHON

NUMBERS = itertools.count()


def event(name, own=0.0, parent=None, **changes):
    """An event as torch's profiler has them: it took `own` microseconds itself, inside `parent`."""
    begun = float(next(NUMBERS))
    facts = {
        "name": name,
        "self_cpu_time_total": own,
        "self_device_time_total": 0.0,
        "cpu_parent": parent,
        "thread": 1,
        "fwd_thread": 0,
        "sequence_nr": -1,
        "scope": 0,
        "is_async": False,
        "is_user_annotation": False,
        "device_type": SimpleNamespace(name="CPU"),
        "time_range": SimpleNamespace(start=begun, end=begun + 1.0),
    }
    return SimpleNamespace(**facts | changes)


def a_step():
    """One step: a layer's product and its backward pass, the loss outside, the optimiser, and a batch."""
    step = event("ProfilerStep#7", own=50.0)
    batch = event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", own=5.0, parent=step)
    layer = event(MODULE_MARK + "network.0", own=10.0, parent=step)
    product = event("aten::addmm", own=100.0, parent=layer, sequence_nr=3)
    loss = event("aten::mse_loss", own=7.0, parent=step, sequence_nr=4)
    of_loss = event("autograd::engine::evaluate_function: MseLossBackward0", own=1.0, sequence_nr=4, fwd_thread=1)
    of_product = event("AddmmBackward0", own=2.0, scope=1, sequence_nr=3, fwd_thread=1, thread=2)
    inside = event("aten::mm", own=200.0, parent=of_product, thread=2)
    gradient = event("torch::autograd::AccumulateGrad", own=3.0, parent=event("other", thread=2), scope=1, thread=2)
    update = event("Optimizer.step#SGD.step", own=20.0, parent=step)
    added = event("aten::add_", own=30.0, parent=update)
    return [step, batch, layer, product, loss, of_loss, of_product, inside, gradient, update, added]


def test_a_backward_operator_belongs_to_the_module_that_made_it():
    found = {
        row.title: row.host_seconds * 1e6 for row in modules(a_step(), 1, {"network.0": "Linear"}, has_device=False)
    }
    assert found == pytest.approx(
        {
            "network.0 forward": 110.0,
            "network.0 backward": 202.0,
            "(the module itself) backward": 4.0,
            "(outside of modules)": 57.0,
            "(optimizer)": 50.0,
            "(loading data)": 5.0,
        }
    )


def test_every_microsecond_counts_once_by_operator_and_by_module():
    events = a_step()
    whole = sum(one.self_cpu_time_total for one in events) * 1e-6
    assert sum(row.host_seconds for row in operators(events, 1, has_device=False)) == pytest.approx(whole)
    assert sum(row.host_seconds for row in modules(events, 1, {}, has_device=False)) == pytest.approx(whole)


def test_marks_and_steps_are_the_interpreters_time_and_calls_are_those_of_a_step():
    rows = {row.name: row for row in operators(a_step(), 2, has_device=False)}
    assert rows[PYTHON].host_seconds == pytest.approx(30e-6)
    assert rows["aten::mm"].calls == 0.5
    assert next(iter(rows)) == "aten::mm", "the longest first"


def test_on_a_device_the_kernels_count_for_the_operator_that_started_them():
    """What runs beside, such as an exchange of gradients, has no place in the host's order."""
    product = event("aten::mm", own=5.0, self_device_time_total=900.0)
    noted = event("a user's range", own=1.0, self_device_time_total=900.0, is_user_annotation=True)
    kernel = event("gemm", device_type=SimpleNamespace(name="CUDA"))
    beside = event("nccl:all_reduce", own=50.0, is_async=True)
    first, second = operators([product, noted, kernel, beside], 1, has_device=True)
    assert (first.name, first.seconds, first.host_seconds) == ("aten::mm", pytest.approx(900e-6), pytest.approx(5e-6))
    assert second.seconds == 0.0


def test_marks_stand_around_each_module_and_change_nothing_in_what_is_compiled():
    """The compiled graph has no break and no further operator, with the marks as without them."""
    from torch._dynamo.testing import CompileCounter

    def compiled(*, marked):
        torch._dynamo.reset()
        layers, counter = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), CompileCounter()
        if marked:
            assert mark_modules(layers) == {"": "Sequential", "0": "Linear", "1": "ReLU"}

        def called(inputs):
            return layers(inputs)

        torch.compile(called, backend=counter, fullgraph=True)(torch.ones(2, 4))
        return counter.frame_count, counter.op_count

    assert compiled(marked=True) == compiled(marked=False)


def test_a_mark_ends_where_its_module_fails():
    class Fails(nn.Module):
        def forward(self, inputs):
            raise ValueError("no")

    layers = nn.Sequential(nn.Linear(4, 4), Fails())
    mark_modules(layers)
    with torch.profiler.profile(acc_events=True) as profiler:
        with pytest.raises(ValueError, match="no"):
            layers(torch.ones(2, 4))
        torch.ones(3).add(1)
    after = [one for one in profiler.events() if one.name == "aten::add"]
    assert [one.cpu_parent for one in after] == [None]

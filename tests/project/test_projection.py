"""Projections: what moves them, what they refuse, and how wide they are."""

import math
from dataclasses import replace

import pytest
from resnet50 import RESNET50

from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of, datasheets
from accelsweep.errors import InputError
from accelsweep.features.projection.fit import published
from accelsweep.features.projection.model import Projected, Room
from accelsweep.features.projection.project import Anchor, Workload, project
from accelsweep.features.projection.time_model import (
    FORMS,
    INFERENCE,
    TRAINING,
    TRAINING_32,
    Form,
    bounds,
    family,
    fitted,
    room,
)
from accelsweep.records.run_record import NetworkFamily, Traits

WORK = Workload(RESNET50, batch=256, optimizer="SGD")
CPU = Anchor(rate=2.0)


def rate(workload: Workload, key: str, anchor: Anchor = CPU) -> float:
    """Return the projected training rate, in samples per second."""
    found = project(workload, anchor, datasheet(key), TRAINING).rate
    assert found is not None
    return found.value


def test_a_projection_lies_near_what_was_published():
    """ResNet-50 on an H100 SXM trains at about 2800 pictures a second (Lambda); the interval has to hold that."""
    found = project(WORK, CPU, datasheet("h100-sxm"), TRAINING)
    assert found.rate is not None
    assert found.rate.low < 2790 < found.rate.high


@pytest.mark.parametrize(
    ("model", "batch", "form", "published_rate"),
    [
        ("resnet50@224", 1280, TRAINING, 3079),
        ("bert_base@384", 320, TRAINING, 932),
        ("bert_large@384", 112, TRAINING, 350),
        ("resnet50@224", 640, TRAINING_32, 2259),
        ("bert_base@384", 172, TRAINING_32, 514),
        ("bert_large@384", 64, TRAINING_32, 181),
    ],
)
def test_rates_of_a_card_that_is_in_no_table_lie_in_their_intervals(
    model: str, batch: int, form: Form, published_rate: float
):
    """An H200, by Lambda's second series (commit aa5addb6), of which nothing is in the fit; batches as on 80 GB."""
    traits = next(one.traits for one in published() if one.model == model)
    found = project(Workload(traits, batch, optimizer="SGD"), CPU, datasheet("h200"), form).rate
    assert found is not None
    assert found.low < published_rate < found.high


def test_32_bits_are_projected_where_the_board_has_tf32():
    """Without TF32 the fit was off by two thirds on boards that it had not seen."""
    assert "no peak in tf32" in (project(WORK, CPU, datasheet("t4"), TRAINING_32).reason or "")
    assert project(WORK, CPU, datasheet("l4"), TRAINING_32).reason is None


def test_what_is_projected_has_two_digits_and_no_verdict():
    """More digits, or a verdict, would make it look measured."""
    found = project(WORK, CPU, datasheet("l4"), TRAINING)
    assert found.rate is not None
    assert found.rate.value == float(f"{found.rate.value:.2g}")
    assert not {"verdict", "estimate", "metrics"} & set(Projected.model_fields)


def test_the_wait_for_data_does_not_shrink_with_the_device():
    """Amdahl: with a wait of 10 ms a sample no device is faster than 100 samples a second."""
    waits = replace(WORK, wait_seconds=0.01)
    bounded = project(waits, CPU, datasheet("h100-sxm"), TRAINING).rate
    assert bounded is not None
    assert bounded.high < 100
    assert project(waits, CPU, datasheet("h100-sxm"), TRAINING).limit == "data loading"


def test_a_measured_gpu_moves_the_projection_by_what_it_was_off():
    """Twice the rate on a known board gives twice the rate on another, within an interval of such pairs."""
    here = datasheet("rtx3090")
    once, twice = (Anchor(rate=one, device=here, form=INFERENCE.key) for one in (1000.0, 2000.0))
    slow, fast = (project(WORK, one, datasheet("rtx5090"), INFERENCE).rate for one in (once, twice))
    assert slow is not None
    assert fast is not None
    assert fast.value == pytest.approx(2 * slow.value, rel=0.06)
    alone = project(WORK, CPU, datasheet("rtx5090"), INFERENCE).rate
    assert alone is not None
    assert slow.high / slow.low < alone.high / alone.low, "a transfer is narrower"


@pytest.mark.parametrize(
    ("traits", "why"),
    [
        (RESNET50.model_copy(update={"recurrent": True}), "recurrent networks"),
        (RESNET50.model_copy(update={"unknown": 1e7, "unknown_names": ("_fft_r2c",)}), "_fft_r2c"),
        (RESNET50.model_copy(update={"flops_convolution": 0.0, "flops_product": 0.0}), "no operation"),
    ],
)
def test_what_nobody_published_is_refused_with_its_reason(traits: Traits, why: str):
    """A refusal names what stands in the way."""
    found = project(replace(WORK, traits=traits), CPU, datasheet("t4"), TRAINING)
    assert found.rate is None
    assert why in (found.reason or "")


def test_a_device_without_a_datasheets_figure_is_refused():
    """No peak is guessed."""
    bare: Datasheet = replace(datasheet("t4"), flops_per_second={"float32": 8.1e12})
    assert "states no peak in float16" in (project(WORK, CPU, bare, TRAINING).reason or "")
    with pytest.raises(InputError, match="no board 'h100'"):
        datasheet("h100")


def test_a_network_that_is_trained_in_part_is_refused():
    """Published training rates have a backward pass of twice the forward pass."""
    frozen = replace(WORK, step_flops=RESNET50.flops)
    assert "1.0 times the operations" in (project(frozen, CPU, datasheet("t4"), TRAINING).reason or "")
    assert project(replace(WORK, step_flops=3 * RESNET50.flops), CPU, datasheet("t4"), TRAINING).reason is None


def test_tiny_steps_have_a_wide_interval_and_say_so():
    """No published rate tells how long a host takes to start the kernels of a tiny network."""
    tiny = replace(
        WORK, traits=RESNET50.model_copy(update={"flops_convolution": 1e6, "activations": 1e3, "others": 1e3}), batch=8
    )
    found = project(tiny, CPU, datasheet("h100-sxm"), TRAINING)
    usual = project(WORK, CPU, datasheet("h100-sxm"), TRAINING)
    assert found.limit == "starting kernels"
    assert found.rate is not None
    assert usual.rate is not None
    assert found.rate.high / found.rate.low > 2 * usual.rate.high / usual.rate.low
    assert any("start kernels" in note for note in found.notes)


def test_memory_is_told_by_bounds():
    """What must be kept is too large, what may be kept fits, and between both nobody can tell."""
    least, most = bounds(RESNET50, 64, "Adam", TRAINING)
    assert least >= 16 * RESNET50.parameters
    assert room(RESNET50, 64, "Adam", TRAINING, int(most / 0.9) + 1) is Room.fits
    assert room(RESNET50, 64, "Adam", TRAINING, int((least + most) / 2)) is Room.unsure
    assert room(RESNET50, 64, "Adam", TRAINING, int(least)) is Room.too_large
    assert room(RESNET50, 64, "Adam", TRAINING, None) is Room.unknown


def test_break_even_is_where_the_same_work_costs_the_same():
    """At 1 USD/h here, a device that is surely 10x faster is cheaper at 5 USD/h, and dearer at 5000."""
    here = Anchor(rate=2.0, usd_per_hour=1.0)
    cheap, dear = (project(WORK, here, datasheet("h100-sxm"), TRAINING, usd) for usd in (5.0, 5000.0))
    assert cheap.cheaper.startswith("projected cheaper")
    assert dear.cheaper.startswith("projected dearer")
    assert cheap.usd_per_million_samples is not None
    assert cheap.rate is not None
    assert cheap.usd_per_million_samples.value == pytest.approx(5 / 3600 * 1e6 / cheap.rate.value, rel=0.06)


def test_every_published_rate_has_a_device_and_a_form():
    """The shipped tables belong together, and have all rows that the fit was made from."""
    rates = published()
    assert {one.device for one in rates} <= set(datasheets())
    assert {one.form for one in rates} == set(FORMS) == set(fitted())
    assert all(math.isfinite(one.samples_per_second) and one.samples_per_second > 0 for one in rates)


def test_the_shipped_fit_reached_its_aims():
    """What `benchmarks/projection.py` printed is what stands beside every projection."""
    for form, most in ((INFERENCE, 0.15), (TRAINING, 0.25), (TRAINING_32, 0.25)):
        unseen = fitted()[form.key].unseen_devices
        assert unseen.median_error <= most
        assert unseen.coverage >= 0.88


def test_families_are_told_by_what_does_most_of_the_work():
    """ResNet is convolutions; a share of grouped ones makes a depthwise network."""
    assert family(RESNET50) is NetworkFamily.convolution
    assert family(RESNET50.model_copy(update={"flops_grouped": 1e9})) is NetworkFamily.depthwise
    assert datasheet_of("Tesla T4") == datasheet("t4")

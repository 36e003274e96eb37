"""The claims that we ship: each states its source and its reasons, and names settings that its own grid has."""

from typing import Any

import pytest

from accelsweep.features.claims.model import claims_in
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import Plan

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("shipped claims")]  # its tests share plans

CONF = shipped_root() / "conf"
NAMES = sorted(path.stem for path in (CONF / "experiment" / "claims").glob("*.yaml"))
STATED = {
    "text_classification",
    "vgg16",
    "matmul",
    "elementwise",
    "dlbench",
    "batch_size",
    "resident_data",
    "gpu_preprocessing",
    "mixed_precision",
    "batch_and_lr",
    "data_parallel",
    "inference_energy",
    "feature_extraction",
    "cost_units",
    "same_power_less_money",
    "hardware_tiers",
    "choose_gpu",
    "order_of_magnitude",
    "serving_batching",
    "serving_cluster",
    "more_gpus_oom",
    "gbdt",
    "distillation",
    "small_sets_cpu",
    "ladder",
    "cluster",
}


def named(plan: Plan, selection: dict[str, Any]) -> list[Any]:
    """Return the settings that a figure's selection names, supported or not."""
    return [
        setting for setting in plan.manifest.settings if all(setting.axes.get(k) == v for k, v in selection.items())
    ]


def selections(plan: Plan, *, analogue: bool):
    for claim in claims_in(plan.manifest.options.report):
        figures = claim.figures if not analogue else claim.analogue.figures if claim.analogue else ()
        for figure in (figure for figure in figures if not figure.named_sweeps):
            sides = [side for ratio in figure.ratios for side in ratio.sides]
            if figure.mean_over is None:
                yield from sides
                continue
            for value in {setting.axes[figure.mean_over] for setting in plan.manifest.settings}:
                yield from ({**side, figure.mean_over: value} for side in sides)


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_every_claim_that_can_be_put_to_the_test_is_shipped():
    assert set(NAMES) == STATED


def test_a_claim_is_named_as_its_file_and_has_a_statement_a_source_and_reasons_to_differ(plan_of, name):
    (claim,) = claims_in(plan_of(f"experiment=claims/{name}", "site=local").manifest.options.report)
    assert claim.id == name
    assert len(claim.statement.split()) >= 5
    assert len(claim.source.split()) >= 5
    assert claim.differs


@pytest.mark.parametrize("site", ["gpu_node", "local"])
def test_every_figure_names_exactly_one_setting_of_its_grid(plan_of, name, site):
    plan = plan_of(f"experiment=claims/{name}", f"site={site}")
    for selection in [*selections(plan, analogue=False), *selections(plan, analogue=True)]:
        assert len(named(plan, selection)) == 1, selection


def test_on_a_declared_node_with_gpus_every_figure_can_be_tested(plan_of, name):
    plan = plan_of(f"experiment=claims/{name}", "site=gpu_node")
    for selection in selections(plan, analogue=False):
        assert [setting.unsupported for setting in named(plan, selection)] == [None], selection


def test_without_a_gpu_a_figure_or_an_analogue_is_left_to_measure(plan_of, name):
    plan = plan_of(f"experiment=claims/{name}", "site=local")
    for selection in selections(plan, analogue=True):
        assert [setting.unsupported for setting in named(plan, selection)] == [None], selection
    assert any(setting.unsupported is None for setting in plan.manifest.settings)


def test_the_published_figures_of_dlbench_are_those_of_the_paper(plan_of):
    (claim,) = claims_in(plan_of("experiment=claims/dlbench").manifest.options.report)
    published = {figure.name: list(figure.published.values()) for figure in claim.figures if figure.published}
    assert published == {
        "FCN-5": [0.037, 0.031, 0.027, 0.024, 0.026],
        "FCN-8": [0.041, 0.035, 0.030, 0.026, 0.029],
        "AlexNet": [0.046, 0.035, 0.032, 0.032, 0.028],
        "ResNet-50": [0.416, 0.184, 0.153, 0.257, 0.157],
        "LSTM-32": [0.061, 0.125, 0.074, 0.096],
        "LSTM-64": [0.120, 0.256, 0.137, 0.186],
    }
    for figure in claim.figures:
        if figure.published:
            values = figure.published.values()
            assert figure.claimed == f"{min(values):g} to {max(values):g}"


def test_the_mini_batches_of_dlbench_are_those_of_the_paper(plan_of):
    plan = plan_of("experiment=claims/dlbench", "accelerator=cpu")
    sizes = [setting.config.batch_size for setting in plan.settings]
    assert sizes == [64, 64, 16, 16, 128, 128]

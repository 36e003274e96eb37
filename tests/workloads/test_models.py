"""The shipped models: their sizes as published, what they compute and learn, what the execution axes do."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from accelsweep.measure.flops import training_flops
from accelsweep.workloads.image_models import FCN, MLP, VGG16, AlexNet, AlexNetCifar, ResNet50, ResNetCifar, SmallCNN
from accelsweep.workloads.language_models import GPT2, BiLSTMTextClassifier, LSTMLanguageModel
from accelsweep.workloads.lightning_modules import Classifier

ROOT = Path(__file__).parents[2]
CONFIGS = {path.stem: OmegaConf.load(path) for path in sorted((ROOT / "conf" / "model").glob("*.yaml"))}
NETWORKS = [
    name
    for name, config in CONFIGS.items()
    if not OmegaConf.is_missing(config, "_target_")
    and re.search(r"workloads\.(image|language)_models|distillation", config._target_)
]
IMAGES = torch.linspace(-1, 1, 4 * 3 * 32 * 32).reshape(4, 3, 32, 32)
TOKENS = torch.arange(4 * 7).reshape(4, 7) % 11
TINY = {
    "small_cnn": (partial(SmallCNN, channels=3, width=4), IMAGES),
    "mlp": (partial(MLP, image_size=32, channels=3, width=8), IMAGES),
    "fcn": (partial(FCN, features=3072, hidden=[8, 8], classes=10), IMAGES),
    "alexnet": (partial(AlexNet, classes=10, hidden=16), IMAGES.repeat(1, 1, 2, 2)),
    "alexnet_cifar": (AlexNetCifar, IMAGES),
    "vgg16": (partial(VGG16, classes=10, width=4, hidden=16, dropout=0.0), IMAGES),
    "resnet50": (partial(ResNet50, classes=10, width=8, blocks=[1, 1, 1, 1]), IMAGES),
    "resnet56": (partial(ResNetCifar, blocks_per_stage=1), IMAGES),
    "lstm": (partial(LSTMLanguageModel, vocabulary=11, hidden=8), TOKENS),
    "text_classifier": (
        lambda **options: BiLSTMTextClassifier(vocabulary=11, embedding=8, hidden=8, **options),
        TOKENS,
    ),
    "gpt2": (partial(GPT2, vocabulary=11, context=8, width=8, layers=2, heads=2), TOKENS),
}
EVERY = pytest.mark.parametrize("name", sorted(TINY))
WITH_IMAGES = pytest.mark.parametrize("name", sorted({*TINY} - {"mlp", "fcn", "lstm", "text_classifier", "gpt2"}))


def tiny(name, **options):
    make, inputs = TINY[name]
    torch.manual_seed(1)
    module = make(**options)
    targets = TOKENS if name in ("lstm", "gpt2") else torch.arange(4) % 2
    return module, (inputs, targets)


def on_meta(config):
    with torch.device("meta"):
        return instantiate(OmegaConf.to_container(config), _convert_="all")


def parameter_count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("model", "parameters", "source"),
    [
        ("fcn5", 117_997_696, "Shi et al. 2016: 26752-2048-2048-2048-26752, about 118 M"),
        ("fcn8", 130_586_752, "Shi et al. 2016: six hidden layers, about 131 M"),
        ("fcn5_mnist", 14_205_962, "Shi et al. 2016: 784-2048-4096-1024-10, about 14.2 M"),
        ("alexnet", 62_378_344, "Krizhevsky et al. 2012 on one GPU, without groups: 62.4 M"),
        ("alexnet_cifar", 85_098, "Shi et al. 2016: 85 to 90 k, by how pooling rounds"),
        ("vgg16", 138_357_544, "Simonyan and Zisserman 2015, table 2: 138 M"),
        ("resnet50", 25_557_032, "He et al. 2015: 25.6 M"),
        ("resnet56", 853_018, "He et al. 2015, table 6: 0.85 M"),
        ("lstm", 6_182_672, "Shi et al. 2016: 2 layers of 256, vocabulary 10 000, about 6 M"),
        ("text_classifier", 2_758_914, "Keras's example: 2 757 761 with one bias per gate and one output"),
        ("gpt2", 124_439_808, "Radford et al. 2019, as published: 124 M"),
    ],
)
def test_a_model_has_as_many_parameters_as_its_source_says(model, parameters, source):
    assert parameter_count(on_meta(CONFIGS[model])) == parameters, source


def test_the_text_classifier_differs_from_keras_by_one_bias_per_gate_and_one_output():
    biases, output = 2 * 2 * 4 * 64, 2 * 64 + 1
    assert parameter_count(BiLSTMTextClassifier()) - biases - output == 2_757_761


def test_parameter_counts_of_our_own_networks_are_those_of_the_arithmetic():
    convolutions = 9 * (1 * 32 + 32 * 64 + 64 * 128)
    assert parameter_count(SmallCNN(width=32, depth=3)) == convolutions + 2 * (32 + 64 + 128) + 128 * 10 + 10
    assert parameter_count(MLP(width=256, depth=2)) == (64 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 10


@pytest.mark.parametrize("model", NETWORKS)
def test_the_guide_lists_every_model_with_its_number_of_parameters(model):
    parameters = parameter_count(on_meta(CONFIGS[model]))
    row = re.search(rf"^\| `{model}` \|.*$", (ROOT / "docs" / "workloads.md").read_text(), re.MULTILINE)
    assert row, f"docs/workloads.md has no row for model={model}"
    listed = f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters / 1e3:.1f} k"
    assert row[0].split("|")[3].strip() == listed


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["fcn5", "fcn8", "fcn5_mnist", *sorted({*TINY} - {"fcn"})])
def test_the_config_of_every_model_builds_it(model):
    assert isinstance(on_meta(CONFIGS[model]), Classifier)


@EVERY
@pytest.mark.exhaustive
def test_every_parameter_gets_a_gradient_and_a_few_steps_lower_the_loss(name):
    module, batch = tiny(name)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.001)
    losses = []
    for _ in range(6):
        loss = module.training_step(batch, 0)
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad.any() for parameter in module.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.exhaustive
@EVERY
def test_the_flops_of_every_model_are_counted(name):
    with torch.device("meta"):
        module, (inputs, targets) = tiny(name)
        batch = inputs.to("meta"), targets.to("meta")
    assert training_flops(lambda: module.training_step(batch, 0)).total > 0


def test_a_fully_connected_network_has_six_flops_per_weight_and_sample():
    """2 forward, 2 for the weights' gradients, 2 for the inputs' gradients, which the first layer does not need."""
    module, batch = tiny("fcn")
    first, rest = 3072 * 8, 8 * 8 + 8 * 10
    assert training_flops(lambda: module.training_step(batch, 0)).total == 4 * (4 * first + 6 * rest)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("model", "size", "billions"), [(ResNet50, 224, 4.1), (VGG16, 224, 15.5), (ResNetCifar, 32, 0.126)]
)
def test_an_image_network_has_as_many_multiply_adds_as_published(model, size, billions):
    """Those of the forward pass; forward and backward have six FLOPs for each (four in the first layer)."""
    with torch.device("meta"):
        module = model()
        batch = torch.empty(2, 3, size, size), torch.empty(2, dtype=torch.long)
    counted = training_flops(lambda: module.training_step(batch, 0)).total / 2 / 6e9
    assert counted == pytest.approx(billions, rel=0.02)


def test_the_flops_of_gpt2_are_those_of_the_formula_for_transformers():
    """A. Chowdhery et al., "PaLM" (2022), appendix B: 6 N + 12 layers * width * sequence per token."""
    with torch.device("meta"):
        module, tokens = GPT2(), torch.empty(2, 1024, dtype=torch.long)
    counted = training_flops(lambda: module.training_step((tokens, tokens), 0)).total / tokens.numel()
    weights = parameter_count(module) - 1024 * 768
    assert counted == pytest.approx(6 * weights + 12 * 12 * 768 * 1024, rel=0.002)


@pytest.mark.parametrize("model", [SmallCNN, MLP])
@pytest.mark.parametrize(("image_size", "channels"), [(8, 1), (28, 1), (32, 3), (5, 2)])
def test_any_square_image_gives_one_logit_per_class(model, image_size, channels):
    network = model(image_size=image_size, channels=channels, classes=7)
    assert network(torch.randn(3, channels, image_size, image_size)).shape == (3, 7)


def test_an_mlp_takes_the_rows_of_a_table():
    assert MLP(features=13, classes=3)(torch.randn(2, 13)).shape == (2, 3)


@pytest.mark.parametrize("name", ["gpt2", "lstm"])
def test_the_logits_of_a_token_do_not_depend_on_later_tokens(name):
    module, _ = tiny(name)
    changed = TOKENS.clone()
    changed[:, 4:] = 0
    before, after = module.eval()(TOKENS), module(changed)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


def test_the_text_classifier_reads_in_both_directions():
    module, _ = tiny("text_classifier")
    for position in (0, 6):
        changed = TOKENS.clone()
        changed[:, position] = 10
        assert not torch.equal(module(TOKENS), module(changed))


def test_gpt2_shares_its_embedding_between_input_and_output():
    module, _ = tiny("gpt2")
    assert module.network.output.weight is module.network.tokens.weight
    with pytest.raises(ValueError, match=r"not a multiple of model\.heads=3"):
        GPT2(width=8, heads=3)

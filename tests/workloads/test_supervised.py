"""A plain network with a loss: which part of a batch goes where, and what is logged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from accelsweep.errors import InputError
from accelsweep.workloads.lightning_modules import Supervised

IMAGES, CLASSES = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


class Seen(nn.Module):
    """Remembers its arguments and returns what it is told to."""

    def __init__(self, returns=None):
        super().__init__()
        self.layer, self.returns = nn.Linear(3, 2), returns

    def forward(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs
        return self.returns(self) if self.returns else self.layer(args[0])


def evaluated(module, batch):
    logged = {}
    module.log = lambda name, value, **options: logged.update({name: (float(value.detach()), options["batch_size"])})
    module.validation_step(batch, 0)
    return logged


def test_the_last_tensor_of_a_tuple_is_the_target_and_strings_are_left_out():
    network = Seen()
    module = Supervised(network, nn.CrossEntropyLoss())
    loss = module.training_step((IMAGES, CLASSES, ["a.png"] * 4), 0)
    assert len(network.args) == 1
    assert loss == nn.functional.cross_entropy(network.layer(IMAGES), CLASSES)


def test_several_inputs_are_given_in_order():
    network = Seen()
    Supervised(network, nn.CrossEntropyLoss()).training_step([IMAGES, IMAGES + 1, CLASSES], 0)
    assert torch.equal(network.args[1], IMAGES + 1)


def test_a_lone_tensor_is_its_own_target_as_autoencoders_want_it():
    module = Supervised(nn.Identity(), nn.MSELoss())
    assert module.training_step(IMAGES, 0) == 0


def test_a_mapping_is_given_by_name_without_its_target():
    network = Seen(lambda seen: seen.layer(seen.kwargs["x"]))
    Supervised(network, nn.CrossEntropyLoss(), target="y").training_step(
        {"x": IMAGES, "y": CLASSES, "id": ["a"] * 4}, 0
    )
    assert set(network.kwargs) == {"x"}


def test_chosen_inputs_of_a_mapping_are_given_in_order():
    network = Seen()
    module = Supervised(network, nn.CrossEntropyLoss(), inputs="image", target="y")
    module.training_step({"mask": CLASSES, "image": IMAGES, "y": CLASSES}, 0)
    assert torch.equal(network.args[0], IMAGES)
    assert not network.kwargs
    with pytest.raises(InputError, match=r"model.inputs=image: the batch has no such key; it has picture, y"):
        module.training_step({"picture": IMAGES, "y": CLASSES}, 0)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loss, logits: SimpleNamespace(loss=loss, logits=logits),
        lambda loss, logits: {"loss": loss, "logits": logits},
    ],
)
def test_a_network_may_return_its_loss_itself(wrap):
    network = Seen(lambda seen: wrap(seen.layer.weight.sum(), seen.layer(seen.kwargs["x"])))
    module = Supervised(network, None)
    assert module.training_step({"x": IMAGES, "labels": CLASSES}, 0) == network.layer.weight.sum()
    assert set(network.kwargs) == {"x", "labels"}
    assert set(evaluated(module, {"x": IMAGES, "labels": CLASSES})) == {"val_loss", "val_accuracy"}


def test_validation_logs_loss_and_accuracy_weighted_by_samples():
    network = Seen()
    logged = evaluated(Supervised(network, nn.CrossEntropyLoss()), (IMAGES, CLASSES))
    right = (network.layer(IMAGES).argmax(1) == CLASSES).float().mean()
    assert logged["val_accuracy"] == (pytest.approx(float(right)), 4)
    assert logged["val_loss"][1] == 4


def test_accuracy_finds_the_dimension_of_the_classes():
    tokens = torch.randint(5, (2, 7))
    for shape, dim in (((2, 7, 5), -1), ((2, 5, 7), 1)):
        logits = torch.randn(shape)
        module = Supervised(Seen(lambda _, logits=logits: logits), lambda *_: torch.tensor(0.0))
        logged = evaluated(module, (IMAGES, tokens))
        assert logged["val_accuracy"][0] == pytest.approx(float((logits.argmax(dim) == tokens).float().mean()))


def test_a_language_model_with_its_own_loss_has_no_accuracy_because_its_labels_may_be_shifted():
    network = Seen(lambda seen: SimpleNamespace(loss=torch.tensor(1.0), logits=torch.randn(2, 7, 5)))
    tokens = torch.randint(5, (2, 7))
    assert set(evaluated(Supervised(network, None), {"x": tokens, "labels": tokens})) == {"val_loss"}


def test_targets_that_are_no_classes_have_no_accuracy():
    assert set(evaluated(Supervised(nn.Identity(), nn.MSELoss()), (IMAGES, IMAGES))) == {"val_loss"}


def test_what_is_missing_is_said_with_the_key_to_set():
    with pytest.raises(InputError, match=r"no target for model.loss.*set model.loss=null"):
        Supervised(Seen(lambda seen: seen.layer(seen.kwargs["x"])), nn.CrossEntropyLoss()).training_step(
            {"x": IMAGES}, 0
        )
    with pytest.raises(InputError, match=r"model.loss is null, but the network returned no scalar loss"):
        Supervised(Seen(), None).training_step((IMAGES,), 0)
    with pytest.raises(InputError, match="without a tensor or logits"):
        Supervised(Seen(lambda _: SimpleNamespace()), nn.CrossEntropyLoss()).training_step((IMAGES, CLASSES), 0)
    with pytest.raises(InputError, match=r"model.network gave a int; it must be a torch.nn.Module"):
        Supervised(3, None)


def test_compile_and_channels_last_are_axes_of_any_network():
    module = Supervised(nn.Conv2d(3, 2, 1), nn.CrossEntropyLoss(), channels_last=True)
    assert next(module.network.parameters()).is_contiguous(memory_format=torch.channels_last)
    module.training_step((torch.randn(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long)), 0)

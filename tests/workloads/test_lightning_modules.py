"""Classifier and Supervised: which part of a batch goes where, and what is logged."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from accelsweep.errors import InputError
from accelsweep.workloads.lightning_modules import Classifier, Supervised

INPUTS, CLASSES = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


class Recording(nn.Module):
    """Records its arguments and returns the result of `returns(self)`, by default that of a linear layer."""

    def __init__(self, returns=None):
        super().__init__()
        self.layer, self.returns = nn.Linear(3, 2), returns

    def forward(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs
        return self.returns(self) if self.returns else self.layer(args[0])


def logged_by_validation(module, batch):
    """The logged values and their batch sizes."""
    logged = {}
    module.log = lambda name, value, **options: logged.update({name: (float(value.detach()), options["batch_size"])})
    module.validation_step(batch, 0)
    return logged


def test_the_loss_and_accuracy_of_a_language_model_count_every_token():
    class Fixed(nn.Module):
        def forward(self, tokens):
            return torch.eye(3)[tokens] * 100.0

    tokens = torch.tensor([[0, 1, 2], [0, 0, 1]])
    targets = torch.tensor([[0, 1, 2], [0, 0, 2]])
    logged = logged_by_validation(Classifier(Fixed()), (tokens, targets))
    assert logged == {"val_loss": (pytest.approx(100 / 6), 2), "val_accuracy": (pytest.approx(5 / 6), 2)}


def test_the_last_tensor_of_a_tuple_is_the_target_and_strings_are_ignored():
    network = Recording()
    module = Supervised(network, nn.CrossEntropyLoss())
    loss = module.training_step((INPUTS, CLASSES, ["a.png"] * 4), 0)
    assert len(network.args) == 1
    assert loss == nn.functional.cross_entropy(network.layer(INPUTS), CLASSES)


def test_several_inputs_are_passed_in_order():
    network = Recording()
    Supervised(network, nn.CrossEntropyLoss()).training_step([INPUTS, INPUTS + 1, CLASSES], 0)
    assert torch.equal(network.args[1], INPUTS + 1)


def test_a_single_tensor_is_its_own_target_for_autoencoders():
    assert Supervised(nn.Identity(), nn.MSELoss()).training_step(INPUTS, 0) == 0


def test_a_mapping_is_passed_by_name_without_its_target():
    network = Recording(lambda self: self.layer(self.kwargs["x"]))
    module = Supervised(network, nn.CrossEntropyLoss(), target="y")
    module.training_step({"x": INPUTS, "y": CLASSES, "id": ["a"] * 4}, 0)
    assert set(network.kwargs) == {"x"}


def test_chosen_inputs_of_a_mapping_are_passed_in_order():
    network = Recording()
    module = Supervised(network, nn.CrossEntropyLoss(), inputs="image", target="y")
    module.training_step({"mask": CLASSES, "image": INPUTS, "y": CLASSES}, 0)
    assert torch.equal(network.args[0], INPUTS)
    assert not network.kwargs
    with pytest.raises(InputError, match=r"model.inputs=image: the batch has no such key; it has picture, y"):
        module.training_step({"picture": INPUTS, "y": CLASSES}, 0)


@pytest.mark.parametrize("wrap", [SimpleNamespace, dict])
def test_a_network_may_return_its_loss(wrap):
    network = Recording(lambda self: wrap(loss=self.layer.weight.sum(), logits=self.layer(self.kwargs["x"])))
    module = Supervised(network, None)
    assert module.training_step({"x": INPUTS, "labels": CLASSES}, 0) == network.layer.weight.sum()
    assert set(network.kwargs) == {"x", "labels"}
    assert set(logged_by_validation(module, {"x": INPUTS, "labels": CLASSES})) == {"val_loss", "val_accuracy"}


def test_validation_logs_loss_and_accuracy_weighted_by_samples():
    network = Recording()
    logged = logged_by_validation(Supervised(network, nn.CrossEntropyLoss()), (INPUTS, CLASSES))
    accuracy = (network.layer(INPUTS).argmax(1) == CLASSES).float().mean()
    assert logged["val_accuracy"] == (pytest.approx(float(accuracy)), 4)
    assert logged["val_loss"][1] == 4


@pytest.mark.parametrize(("shape", "dim"), [((2, 7, 5), -1), ((2, 5, 7), 1)])
def test_accuracy_finds_the_dimension_of_the_classes(shape, dim):
    logits, tokens = torch.randn(shape), torch.randint(5, (2, 7))
    module = Supervised(Recording(lambda _: logits), lambda *_: torch.tensor(0.0))
    logged = logged_by_validation(module, (INPUTS, tokens))
    assert logged["val_accuracy"][0] == pytest.approx(float((logits.argmax(dim) == tokens).float().mean()))


def test_a_language_model_that_returns_its_loss_has_no_accuracy_because_its_labels_may_be_shifted():
    network = Recording(lambda _: SimpleNamespace(loss=torch.tensor(1.0), logits=torch.randn(2, 7, 5)))
    tokens = torch.randint(5, (2, 7))
    assert set(logged_by_validation(Supervised(network, None), {"x": tokens, "labels": tokens})) == {"val_loss"}


def test_targets_other_than_classes_have_no_accuracy():
    assert set(logged_by_validation(Supervised(nn.Identity(), nn.MSELoss()), (INPUTS, INPUTS))) == {"val_loss"}


def test_a_missing_part_is_reported_with_the_key_to_set():
    module = Supervised(Recording(lambda self: self.layer(self.kwargs["x"])), nn.CrossEntropyLoss())
    with pytest.raises(InputError, match=r"no target for model.loss.*set model.loss=null"):
        module.training_step({"x": INPUTS}, 0)
    with pytest.raises(InputError, match=r"model.loss is null, but the network returned no scalar loss"):
        Supervised(Recording(), None).training_step((INPUTS,), 0)
    with pytest.raises(InputError, match="contains neither a tensor nor logits"):
        Supervised(Recording(lambda _: SimpleNamespace()), nn.CrossEntropyLoss()).training_step((INPUTS, CLASSES), 0)
    with pytest.raises(InputError, match=r"model.network is a int; it must be a torch.nn.Module"):
        Supervised(3, None)

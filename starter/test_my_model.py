"""What a sweep relies on, checked in a second: `pytest`. A sweep that fails after an hour is a test that was not written."""

import pytest
import torch
from my_model import MyData, MyModule


@pytest.mark.parametrize("batch_size", [4, 32])
def test_batches_have_the_size_that_is_asked_for(batch_size):
    """The axis batch_size must reach the loader; a run whose first batch has another size is refused."""
    data = MyData(batch_size=batch_size, samples=100)
    data.setup("fit")
    points, spirals = next(iter(data.train_dataloader()))
    assert points.shape == (batch_size, 2)
    assert spirals.shape == (batch_size,)


def test_the_loss_goes_down():
    """The training step returns a loss that an optimiser can lower."""
    data, module = MyData(batch_size=64, samples=64), MyModule(width=32)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    losses = []
    for step in range(50):
        loss = module.training_step(batch, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2

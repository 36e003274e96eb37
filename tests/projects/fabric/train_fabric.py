"""A loop with Lightning Fabric, started by `fabric run`, which sets the accelerator, the devices and the precision."""

import argparse

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1000)
    options = parser.parse_args()
    fabric = Fabric()
    fabric.seed_everything(0)
    labels = torch.randint(0, 10, (2000,))
    points = nn.functional.one_hot(labels, 32) + 0.3 * torch.randn(2000, 32)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(points, labels), options.batch_size, shuffle=True))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), 1e-3))
    for _ in range(options.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            fabric.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()


if __name__ == "__main__":
    main()

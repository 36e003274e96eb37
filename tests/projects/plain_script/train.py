"""A training loop of its own: argparse, a DataLoader, an evaluation after each epoch, and torchrun's ranks."""

import argparse
import contextlib
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--no-cuda", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() and not options.no_cuda else "cpu")
    labels = torch.randint(0, 10, (2000,))
    points = nn.functional.one_hot(labels, 32) + 0.3 * torch.randn(2000, 32)
    data, sampler = TensorDataset(points, labels), None
    model = nn.Sequential(nn.Linear(32, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10)).to(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        model, sampler = nn.parallel.DistributedDataParallel(model), DistributedSampler(data)
    loader = DataLoader(data, options.batch_size, shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    autocast = torch.autocast(device.type, torch.bfloat16) if options.bf16 else contextlib.nullcontext()
    for epoch in range(options.epochs):
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            with autocast:
                loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(inputs.to(device)).argmax(1).cpu() == targets).sum() for inputs, targets in loader)
        print(f"epoch {epoch}: accuracy {right / len(data):.3f}")


if __name__ == "__main__":
    main()

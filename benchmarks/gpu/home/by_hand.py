"""A training loop without accelsweep's code: the shipped network, the same batch again and again, SGD.

    python by_hand.py SPEC.json

The spec holds `device`, `batch_size`, `image_size`, `classes`, `blocks`, `width`, `precision` (`32-true` or
`bf16-mixed`), `warmup_steps` and `seconds`. The samples per second are printed as the last line.
"""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from accelsweep.testing.simulated_torch import register
from accelsweep.workloads.image_models import ResNet50


def rate(spec: dict[str, Any]) -> float:
    """Return samples per second over a number of steps that is fixed before the clock is read."""
    if spec["device"] == "simulated":
        register()
    device = torch.device(spec["device"])
    torch.manual_seed(1)
    layout = torch.channels_last
    shape = {"classes": spec["classes"], "blocks": spec["blocks"], "width": spec["width"]}
    network = ResNet50(**shape).network.to(device, memory_format=layout).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    size = (spec["batch_size"], 3, spec["image_size"], spec["image_size"])
    images = torch.rand(size, device=device).contiguous(memory_format=layout)
    classes = torch.randint(spec["classes"], (spec["batch_size"],), device=device)

    def steps(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            lower = torch.autocast(device.type, torch.bfloat16) if spec["precision"] != "32-true" else nullcontext()
            optimizer.zero_grad()
            with lower:
                loss = functional.cross_entropy(network(images), classes)
            loss.backward()
            optimizer.step()
        if device.type != "cpu":
            torch.get_device_module(device).synchronize()
        return time.perf_counter() - begin

    steps(spec["warmup_steps"])
    count = max(3, round(spec["seconds"] / (steps(5) / 5)))
    return count * spec["batch_size"] / steps(count)


if __name__ == "__main__":
    print(rate(json.loads(Path(sys.argv[1]).read_text("utf-8"))))

"""Work of another process on the device: small matrix products until it is ended. `python occupant.py DEVICE MARK`."""

import os
import sys
from pathlib import Path

import torch

from accelsweep.testing.simulated_torch import register

if sys.argv[1] == "simulated":
    register()
operand = torch.randn(128 if sys.argv[1] == "simulated" else 1024, 1024, device=sys.argv[1])
Path(sys.argv[2]).write_text(str(os.getpid()), "utf-8")
while True:
    for _ in range(50):
        torch.mm(operand, operand.t())
    torch.get_device_module(sys.argv[1]).synchronize()

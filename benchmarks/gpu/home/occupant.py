"""Work of another process on the GPU: small matrix products until it is ended. `python occupant.py MARK`."""

import os
import sys
from pathlib import Path

import torch

operand = torch.randn(1024, 1024, device="cuda")
Path(sys.argv[1]).write_text(str(os.getpid()), "utf-8")
while True:
    for _ in range(50):
        torch.mm(operand, operand)
    torch.cuda.synchronize()

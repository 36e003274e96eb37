"""`lightning.pytorch` names the modules of `pytorch_lightning` where a script's Trainer comes from that package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from accelsweep.worker.lightning_alias import use_pytorch_lightning
use_pytorch_lightning()
use_pytorch_lightning()
import lightning.pytorch as pl
import pytorch_lightning
from lightning.pytorch.callbacks import Callback
from lightning.fabric import Fabric
assert pl is pytorch_lightning and Callback is pytorch_lightning.callbacks.Callback and Fabric == "fabric"
assert len(sys.meta_path) == len({id(finder) for finder in sys.meta_path})
print("the same")
"""


def test_both_names_are_the_same_modules(tmp_path: Path) -> None:
    package = tmp_path / "pytorch_lightning"
    package.mkdir()
    (package / "__init__.py").write_text("from pytorch_lightning import callbacks\n")
    (package / "callbacks.py").write_text("class Callback: pass\n")
    (tmp_path / "lightning_fabric.py").write_text("Fabric = 'fabric'\n")
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": f"{source}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "the same\n", done.stderr

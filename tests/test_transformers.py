"""The callback for Hugging Face's Trainer."""

from __future__ import annotations

import pytest
import torch
from example_sweep import build_example_sweep

from accelsweep.errors import InputError

pytestmark = pytest.mark.heavy


def test_a_training_is_compared(tmp_path, monkeypatch, capsys):
    from transformers import Trainer, TrainingArguments

    from accelsweep.transformers import Watch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x):
            return {"loss": self.layer(x).sum()}

    monkeypatch.chdir(tmp_path)
    build_example_sweep(tmp_path)
    arguments = TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=32, max_steps=60, use_cpu=True, report_to=[], save_steps=1000
    )
    data = [{"x": torch.zeros(4)}] * 640
    Trainer(Model(), arguments, train_dataset=data, callbacks=[Watch("example")]).train()
    said = capsys.readouterr().err
    assert "accelsweep: the whole training: " in said
    assert "batch 32, 32-bit, 1 device" in said
    with pytest.raises(InputError, match="no sweep 'other'"):
        Watch("other")

"""Tokens are counted exactly, also under padding: in both loops, in scripts, and in batches of a token budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from one_rank import BOTH_LOOPS, MEASURE, make_spec, run_ranks
from torch import nn

from accelsweep.errors import InputError
from accelsweep.results import Outcome
from accelsweep.worker.loops.token_count import TokenCounter

IDS = torch.zeros(2, 5, dtype=torch.long)
MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
LABELS = torch.tensor([[-100, 7, 7, -100, -100], [-100, 1, 2, 3, 4]])


class CountsItsTokens(nn.Module):
    def tokens(self, batch: Any) -> Any:
        return batch["lengths"]


class CountsNonsense(nn.Module):
    def tokens(self, batch: Any) -> Any:
        return "many"


@pytest.mark.parametrize(
    ("batch", "module", "tokens", "unit"),
    [
        ({"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}, None, 8, "ones of attention_mask"),
        ({"input_ids": IDS, "attention_mask": MASK.bool()}, None, 8, "ones of attention_mask"),
        ({"input_ids": IDS, "labels": LABELS}, None, 6, "labels other than -100"),
        ({"input_ids": IDS}, None, 10, "positions of its sequences"),
        ((IDS, LABELS), None, 10, "positions of its sequences"),
        (IDS, None, 10, "positions of its sequences"),
        ({"lengths": torch.tensor([3, 4])}, CountsItsTokens(), 7, "tokens(batch) of CountsItsTokens"),
        ({"lengths": 9}, CountsItsTokens(), 9, "tokens(batch) of CountsItsTokens"),
    ],
)
def test_a_token_is_what_the_first_batch_shows(batch: Any, module: Any, tokens: int, unit: str) -> None:
    counter = TokenCounter()
    for _ in range(2):
        counter.add(batch, module)
        counter.add(batch, module)
        counter.end_step()
    assert counter.known
    assert counter.steps() == [2 * tokens, 2 * tokens]
    assert counter.unit == unit


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(2, 5),
        (torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)),
        (torch.zeros(2, dtype=torch.long),),
        {"pixel_values": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2, dtype=torch.long)},
        {"pixel_values": torch.zeros(2, 3, 8, 8), "labels": torch.zeros(2, 7, dtype=torch.long)},
        torch.zeros(2, 64, dtype=torch.uint8),
        [],
        "text",
    ],
)
def test_batches_without_sequences_have_no_tokens(batch: Any) -> None:
    counter = TokenCounter()
    counter.add(batch)
    counter.end_step()
    assert not counter.known
    assert counter.steps() == []


def test_a_nonsensical_count_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"CountsNonsense.tokens\(batch\) returned 'many', not a number of tokens"):
        TokenCounter().add({}, CountsNonsense())


def test_counts_stay_on_the_device_until_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "__int__", lambda _: pytest.fail("waits for the device"))
    monkeypatch.setattr(torch.Tensor, "item", lambda _: pytest.fail("waits for the device"))
    counter = TokenCounter()
    counter.add({"input_ids": IDS, "attention_mask": MASK})
    counter.end_step()
    monkeypatch.undo()
    assert counter.steps() == [8]


PADDED = """
import torch
from torch import nn
from torch.utils.data import DataLoader

LENGTHS = [1 + 5 * row % 9 for row in range(40)]

def rows(count=40):
    for length in LENGTHS[:count]:
        mask = torch.tensor([1] * length + [0] * (9 - length))
        yield {"input_ids": torch.ones(9, dtype=torch.long) * mask, "attention_mask": mask, "labels": mask}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(4, 8), nn.Linear(8, 4)
    def forward(self, input_ids, attention_mask=None, labels=None):
        return self.output(self.embedding(input_ids))
"""

MODULES = """
import lightning.pytorch as pl

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(**batch).flatten(0, 1), batch["labels"].flatten())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

class Data(pl.LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size
    def train_dataloader(self):
        return DataLoader(list(rows()), batch_size=self.batch_size)
"""

BUDGET = """
class Budget(torch.utils.data.Sampler):
    def __init__(self, tokens):
        self.tokens = tokens
    def __iter__(self):
        batch, used = [], 0
        for row, length in enumerate(LENGTHS):
            if used + length > self.tokens:
                yield batch
                batch, used = [], 0
            batch, used = [*batch, row], used + length
        yield batch

class FilledData(Data):
    def train_dataloader(self):
        return DataLoader(list(rows()), batch_sampler=Budget(self.batch_size))
"""

LENGTHS = [1 + 5 * row % 9 for row in range(40)]


def expected(batches: list[int], metrics: Any, warmup: int) -> float:
    """Return the tokens in the window, given those of each batch of a pass."""
    steps = int(metrics["window_steps"].value)
    return float(sum(batches[(warmup + step) % len(batches)] for step in range(steps)))


def budget_batches(tokens: int) -> list[int]:
    batches = [0]
    for length in LENGTHS:
        if batches[-1] + length > tokens:
            batches.append(0)
        batches[-1] += length
    return batches


@pytest.mark.real
@BOTH_LOOPS
def test_padding_is_not_counted_in_either_loop(loop: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / f"padded_{loop}.py").write_text(PADDED + MODULES)
    names = {"model": {"_target_": f"padded_{loop}.Module"}, "data": {"_target_": f"padded_{loop}.Data"}}
    result = run(loop=loop, **names, optimizer=None)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    batches = [sum(LENGTHS[first : first + 8]) for first in range(0, 40, 8)]
    assert len(set(batches)) > 1, "otherwise the average would do"
    tokens = expected(batches, result.metrics, result.effective.warmup_steps)
    assert result.metrics["window_tokens"].value == tokens
    rate = tokens / result.metrics["window_seconds"].value
    assert result.metrics["tokens_per_second"].value == pytest.approx(rate)
    assert result.metrics["tokens_per_second"].scope == "all ranks, ones of attention_mask"
    achieved, per_sample = (result.metrics[f"model_flops_per_{unit}"].value for unit in ("second", "sample"))
    samples = result.metrics["samples_per_second"].value
    assert achieved == pytest.approx(per_sample * samples), "the device computes for the padding, too"


@pytest.mark.real
def test_operations_follow_the_length_of_the_sequences(run: Any, tmp_path: Path) -> None:
    cut = """
CALLS = [0]
def collate(rows):
    CALLS[0] += 1
    batch = torch.utils.data.default_collate(rows)
    return batch if CALLS[0] == 1 else {key: value[:, :3] for key, value in batch.items()}
"""
    data = MODULES.replace("batch_size=self.batch_size)", "batch_size=self.batch_size, collate_fn=collate)")
    (tmp_path / "shorter.py").write_text(PADDED + cut + data)
    result = run(model={"_target_": "shorter.Module"}, data={"_target_": "shorter.Data"}, optimizer=None)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    achieved, per_sample = (result.metrics[f"model_flops_per_{unit}"].value for unit in ("second", "sample"))
    samples = result.metrics["samples_per_second"].value
    assert achieved == pytest.approx(per_sample * samples * 3 / 9), "after the first batch, they have 3 of 9 positions"


@pytest.mark.real
@BOTH_LOOPS
def test_batches_of_a_token_budget_are_measured(loop: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / f"budget_{loop}.py").write_text(PADDED + MODULES + BUDGET)
    names = {"model": {"_target_": f"budget_{loop}.Module"}, "data": {"_target_": f"budget_{loop}.FilledData"}}
    result = run(loop=loop, **names, optimizer=None, batch_size=24, batch_unit="tokens")
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    warmup = result.effective.warmup_steps
    assert result.metrics["window_tokens"].value == expected(budget_batches(24), result.metrics, warmup)


LOOP = """
import sys
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
loader = DataLoader(list(rows()), batch_size=8)
for epoch in range(100_000):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(**batch).flatten(0, 1), batch["labels"].flatten()).backward()
        optimizer.step()
"""


@pytest.mark.real
def test_padding_is_not_counted_in_a_script(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "attempt").mkdir()
    (tmp_path / "home" / "train.py").write_text(PADDED + LOOP)
    entry = {"kind": "script", "command": ["train.py"], "package": None}
    empty: dict[str, Any] = {"model": {}, "data": {}, "optimizer": None, "trainer": {}}
    config = {"loop": "script", **empty, "batch_size": 8, "measure": MEASURE}
    (result,) = run_ranks(make_spec(tmp_path / "attempt", entry=entry, **config), tmp_path / "home")
    assert result.outcome is Outcome.measured, result.traceback
    assert result.effective is not None
    batches = [sum(LENGTHS[first : first + 8]) for first in range(0, 40, 8)]
    watched = 3 % len(batches)
    rotated = [*batches[watched:], *batches[:watched]]
    tokens = expected(rotated, result.metrics, result.effective.warmup_steps)
    assert result.metrics["window_tokens"].value == tokens

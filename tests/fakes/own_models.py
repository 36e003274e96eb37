"""Cases of a user's own modules and data, one peculiarity each, and how both loops treat them.

`docs/own-models.md` holds these cases as its table; `python tests/fakes/own_models.py` writes it there again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "own-models.md"
BEGIN, END = "<!-- cases -->\n", "<!-- end of cases -->\n"
WORKS = "works"
BATCH_SIZE = 8

PRELUDE = """
import dataclasses, typing
import lightning.pytorch as pl
import torch, torchmetrics
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

X, Y = torch.randn(40, 4), torch.randint(2, (40,))

def loader(batch_size, **options):
    return DataLoader(TensorDataset(X, Y), batch_size=batch_size, drop_last=True, **options)

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        return cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        right = (self.layer(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_accuracy", right, batch_size=len(batch[1]))

class Data(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return loader(self.batch_size, shuffle=True)

    def val_dataloader(self):
        return loader(self.batch_size)
"""


@dataclass(frozen=True)
class Case:
    """A module `Own` or data `OwnData` of a user's; for each loop `works` or a part of the sentence that refuses it.

    `note` is a remark for readers; `model` and `data` are targets where they are not the two.
    """

    what: str
    code: str
    lightning: str = WORKS
    raw: str = WORKS
    note: str = ""
    model: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    quality: str | None = None

    def expected(self, loop: str) -> str:
        return self.raw if loop == "raw" else self.lightning


def stepping(body: str, base: str = "Module") -> str:
    return f"class Own({base}):\n    def training_step(self, batch, batch_idx):\n        {body}\n"


LOSS = "cross_entropy(self.layer(batch[0]), batch[1])"
BATCHES = """
class Own(Module):
    def training_step(self, batch, batch_idx):
        return cross_entropy(self.layer({x}), {y})
    def validation_step(self, batch, batch_idx):
        self.log("val_accuracy", (self.layer({x}).argmax(1) == {y}).float().mean(), batch_size=len({y}))
class OwnData(Data):
    def _loader(self):
        return DataLoader(list(zip(X, Y)), batch_size=self.batch_size, drop_last=True, collate_fn=collate)
    train_dataloader = val_dataloader = _loader
def stacked(samples):
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
"""
UNSTATED = """
class Own(Module):
    def training_step(self, batch, batch_idx):
        return cross_entropy(self.layer(batch[0]), batch[1][:, 0].long())
class OwnData(Data):
    def train_dataloader(self):
        pairs = [(X[at : at + self.batch_size], Y[at : at + self.batch_size, None].float()) for at in (0, 8, 16)]
        return DataLoader(pairs, batch_size=None)
"""
FIXED = "class OwnData(Data):\n    def train_dataloader(self):\n        return loader(5)\n"
ITERABLE = """
class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y))
    {length}
class OwnData(Data):
    def train_dataloader(self):
        return DataLoader(Stream(), batch_size=self.batch_size, drop_last=True)
"""
TWO_OPTIMIZERS = """
    def configure_optimizers(self):
        return [torch.optim.SGD(self.layer.parameters(), lr=0.1), torch.optim.Adam(self.layer.parameters())]
"""
MANUAL = """
class Own(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, batch_idx):
        optimizers = self.optimizers()
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            optimizer.zero_grad()
            self.manual_backward(cross_entropy(self.layer(batch[0]), batch[1]))
            optimizer.step()
"""
SCHEDULED = """
class Own(Module):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {{"optimizer": optimizer, "lr_scheduler": {schedule}}}
"""
CALLBACKS = """
class Seen(pl.Callback):
    pass
class Own(Module):
    def configure_callbacks(self):
        return [{callbacks}]
"""

CASES = (
    Case("a data module that takes `batch_size`", "class OwnData(Data):\n    pass\n"),
    Case(
        "a data module without that argument, but with an attribute or hyperparameter `batch_size`",
        "class OwnData(Data):\n    def __init__(self):\n        super().__init__(batch_size=3)\n",
        note="the attribute is set, as Lightning's batch size finder does",
    ),
    Case(
        "a data module that ignores `batch_size` and has its own",
        FIXED,
        lightning="its loader uses its own batch size. Measure it with batch_size=5",
        raw="its loader uses its own batch size. Measure it with batch_size=5",
        note="or pass `batch_size` to its DataLoader",
    ),
    Case(
        "an iterable data set with a length",
        ITERABLE.format(length="def __len__(self):\n        return len(X)"),
        note="with several ranks, it must shard itself or be wrapped in `data=dataset`, which shards it",
    ),
    Case("an iterable data set without a length", ITERABLE.format(length=""), note="as above"),
    Case(
        "an empty training set",
        "class OwnData(Data):\n    def train_dataloader(self):\n"
        "        return DataLoader([], batch_size=self.batch_size)\n",
        lightning="the training loader yielded no batch: the data set has 0 rows",
        raw="the training loader yielded no batch: the data set has 0 rows",
        note="lower `batch_size`, or keep short batches",
    ),
    Case(
        "batches that are mappings",
        BATCHES.format(x="batch['x']", y="batch['y']") + "def collate(s):\n    return dict(zip('xy', stacked(s)))\n",
    ),
    Case(
        "strings in the batch",
        BATCHES.format(x="batch[1]", y="batch[2]") + "def collate(s):\n    return [['a'] * len(s), *stacked(s)]\n",
    ),
    Case(
        "batches that are named tuples",
        BATCHES.format(x="batch.x", y="batch.y")
        + "class Batch(typing.NamedTuple):\n    x: typing.Any\n    y: typing.Any\n"
        + "def collate(s):\n    return Batch(*stacked(s))\n",
    ),
    Case(
        "batches that are dataclasses",
        BATCHES.format(x="batch.x", y="batch.y")
        + "@dataclasses.dataclass\nclass Batch:\n    x: typing.Any\n    y: typing.Any\n"
        + "def collate(s):\n    return Batch(*stacked(s))\n",
    ),
    Case(
        "batches of a custom class",
        BATCHES.format(x="batch.x", y="batch.y")
        + "class Batch:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n"
        + "def collate(s):\n    return Batch(*stacked(s))\n",
        lightning="cannot determine how many samples a Batch batch contains",
        raw="cannot determine how many samples a Batch batch contains",
        note="make it a dataclass, a named tuple or a mapping, or define `samples(self, batch)`",
    ),
    Case(
        "batches of a custom class, and `samples(self, batch)` in the module",
        BATCHES.format(x="batch.x", y="batch.y").replace(
            "class OwnData", "    def samples(self, batch):\n        return len(batch.y)\nclass OwnData"
        )
        + "class Batch:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n"
        + "def collate(s):\n    return Batch(*stacked(s))\n",
    ),
    Case(
        "images with mappings of boxes, as collated for object detection",
        BATCHES.format(x="torch.stack(batch[0])", y="torch.stack([each['label'] for each in batch[1]])")
        + "def collate(s):\n    return tuple(x for x, _ in s), tuple({'label': y, 'boxes': x[:3]} for x, y in s)\n",
        note="images are counted, because the loader's batch size refers to them",
    ),
    Case(
        "batches that could be either columns or a list of samples, from a loader without a `batch_size`",
        UNSTATED,
        lightning="looks like 2 or 8: define samples(self, batch) in the LightningModule",
        raw="looks like 2 or 8: define samples(self, batch) in the LightningModule",
        note="or set an attribute `batch_size` on the data set",
    ),
    Case(
        "several training loaders at once",
        "class Own(Module):\n    def training_step(self, batch, batch_idx):\n"
        "        return cross_entropy(self.layer(batch['a'][0]), batch['a'][1])\n"
        "class OwnData(Data):\n    def train_dataloader(self):\n"
        "        return {'a': loader(self.batch_size), 'b': loader(self.batch_size)}\n",
        raw="a raw loop needs a single DataLoader",
        note="the samples of the first loader are counted",
    ),
    Case(
        "no validation loader",
        "class OwnData(pl.LightningDataModule):\n    def __init__(self, batch_size):\n        super().__init__()\n"
        "        self.batch_size = batch_size\n"
        "    def train_dataloader(self):\n        return loader(self.batch_size)\n",
        quality="the data or the module has no validation loop",
        note="quality is absent, with this as the reason",
    ),
    Case(
        "no validation step",
        "class Own(pl.LightningModule):\n    __init__ = lambda self: (super(Own, self).__init__(),"
        " setattr(self, 'layer', torch.nn.Linear(4, 2)))[0]\n"
        f"    def training_step(self, batch, batch_idx):\n        return {LOSS}\n",
        quality="the data or the module has no validation loop",
        note="quality is absent, with this as the reason",
    ),
    Case(
        "a validation step that logs something else, or nothing",
        "class Own(Module):\n    def validation_step(self, batch, batch_idx):\n        self.log('mine', 1.0)\n",
        quality="does not log 'val_accuracy' (it logs: mine): set measure.quality_metric",
        note="quality is absent, with this as the reason",
    ),
    Case(
        "torchmetrics objects in `self.log`",
        "class Own(Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.accuracy = torchmetrics.MeanMetric()\n"
        "    def validation_step(self, batch, batch_idx):\n"
        "        self.accuracy.update((self.layer(batch[0]).argmax(1) == batch[1]).float())\n"
        "        self.log('val_accuracy', self.accuracy, batch_size=len(batch[1]))\n",
    ),
    Case(
        "`self.log` with a maximum, a minimum or a sum as `reduce_fx`",
        "class Own(Module):\n    def validation_step(self, batch, batch_idx):\n"
        "        self.log('val_accuracy', 1.0, reduce_fx='max', batch_size=len(batch[1]))\n",
        raw="loop=raw averages logged values, but 'val_accuracy' has reduce_fx=max",
    ),
    Case(
        "several validation loaders",
        "class Own(Module):\n    def validation_step(self, batch, batch_idx, dataloader_idx=0):\n"
        "        self.log('val_accuracy', 1.0, batch_size=len(batch[1]))\n"
        "class OwnData(Data):\n    def val_dataloader(self):\n        return [loader(5), loader(5)]\n",
        raw="loop=raw validates with a single DataLoader",
        quality="val_accuracy/dataloader_idx_0",
        note="`measure.quality_metric` is then the name that Lightning assigns, e.g. `val_accuracy/dataloader_idx_0`",
    ),
    Case(
        "`self.trainer` in the data module, to read ranks",
        "class OwnData(Data):\n    def setup(self, stage):\n        assert self.trainer.world_size == 1\n",
    ),
    Case(
        "`self.trainer` in the data module, for anything else",
        "class OwnData(Data):\n    def train_dataloader(self):\n        assert self.trainer.max_epochs > 0\n"
        "        return super().train_dataloader()\n",
        raw="loop=raw has no Trainer, but OwnData reads self.trainer.max_epochs",
    ),
    Case(
        "a module that provides its own data: `data=module`",
        "class Own(Module):\n    def __init__(self, batch_size=1):\n"
        "        super().__init__()\n        self.batch_size = batch_size\n"
        "    def train_dataloader(self):\n        return loader(self.batch_size)\n"
        "    def val_dataloader(self):\n        return loader(self.batch_size)\n",
        data={"_target_": "accelsweep.workloads.data_module.ModuleData"},
        note="`batch_size` is passed if its `__init__` has that argument",
    ),
    Case(
        "`setup` and `configure_model` in the module",
        "class Own(Module):\n    def setup(self, stage):\n        self.made = []\n"
        "    def configure_model(self):\n        if not self.made:\n            self.made = [stage for stage in 'x']\n"
        "            self.layer = torch.nn.Linear(4, 2)\n"
        f"    def training_step(self, batch, batch_idx):\n        assert self.made\n        return {LOSS}\n",
    ),
    Case(
        "a training step and a validation step without `batch_idx`",
        f"class Own(Module):\n    def training_step(self, batch):\n        return {LOSS}\n"
        "    def validation_step(self, batch):\n        self.log('val_accuracy', 1.0)\n",
    ),
    Case("a training step that returns a mapping", stepping(f"return {{'loss': {LOSS}, 'more': 1}}")),
    Case(
        "a training step that returns one loss per sample",
        stepping("return cross_entropy(self.layer(batch[0]), batch[1], reduction='none')"),
        lightning="grad can be implicitly created only for scalar outputs",
        raw="training_step returned a tensor of shape (8,) as its loss",
        note="reduce it, for example with `loss.mean()`",
    ),
    Case(
        "a training step that returns a tuple",
        stepping("logits = self.layer(batch[0]); return cross_entropy(logits, batch[1]), logits"),
        lightning="training_step` must return a Tensor, a dict, or None",
        raw="training_step returned a tuple (Tensor, Tensor)",
        note="return the loss, or a mapping with the key `loss`",
    ),
    Case(
        "a training step that sometimes returns None",
        stepping(f"return None if batch_idx % 2 else {LOSS}"),
        note="such a step updates no parameters, but its samples are counted",
    ),
    Case(
        "a training step that always returns None",
        stepping("return None"),
        lightning="training_step returned no loss at any step",
        raw="training_step returned no loss at any step",
        note="return the loss, or set `self.automatic_optimization = False`",
    ),
    Case("manual optimisation", MANUAL, raw="loop=raw supports one optimiser"),
    Case("several optimisers, manual", MANUAL + TWO_OPTIMIZERS, raw="loop=raw supports one optimiser"),
    Case(
        "several optimisers, automatic",
        "class Own(Module):\n" + TWO_OPTIMIZERS,
        lightning="multiple optimizers is only supported with manual optimization",
        raw="loop=raw supports one optimiser",
        note="Lightning requires manual optimisation for this",
    ),
    Case(
        "a module with its own optimiser, while `optimizer` is an axis",
        SCHEDULED.format(schedule="torch.optim.lr_scheduler.ConstantLR(optimizer)").replace(
            ', "lr_scheduler"', "} or {0"
        ),
        axes={"optimizer.lr": 0.1},
        lightning="the sweep varies `optimizer`, but Own defines configure_optimizers",
        raw="the sweep varies `optimizer`, but Own defines configure_optimizers",
        note="the module's optimiser takes precedence; if `optimizer` is not an axis, it has no effect",
    ),
    Case(
        "a schedule per step",
        SCHEDULED.format(schedule='{"scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer), "interval": "step"}'),
    ),
    Case(
        "a schedule per epoch",
        SCHEDULED.format(schedule="torch.optim.lr_scheduler.ConstantLR(optimizer)"),
        raw="loop=raw steps a schedule after every optimiser step",
    ),
    Case(
        "a schedule based on a validation metric",
        SCHEDULED.format(
            schedule='{"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "val_accuracy"}'
        ),
        raw="loop=raw steps a schedule after every optimiser step",
        note="it is not stepped while a rate is measured: validation is a separate phase",
    ),
    Case(
        "a schedule of length `self.trainer.estimated_stepping_batches`",
        SCHEDULED.format(
            schedule='{"scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, '
            'total_steps=self.trainer.estimated_stepping_batches), "interval": "step"}'
        ),
        raw="loop=raw has no Trainer, but Own reads self.trainer.estimated_stepping_batches",
        note="it follows `trainer.max_epochs`, or is larger if the planned steps need more",
    ),
    Case(
        "`configure_callbacks`", CALLBACKS.format(callbacks="Seen()"), raw="loop=raw does not call configure_callbacks"
    ),
    Case(
        "`configure_callbacks` with ModelCheckpoint or EarlyStopping",
        CALLBACKS.format(
            callbacks="pl.callbacks.ModelCheckpoint(monitor='val_accuracy'), pl.callbacks.EarlyStopping('val_accuracy')"
        ),
        raw="loop=raw does not call configure_callbacks",
        note="checkpoints, EarlyStopping and Timer are removed, because a run ends with its window",
    ),
    Case(
        "`self.trainer` in the module, to read ranks", stepping(f"assert self.trainer.world_size == 1; return {LOSS}")
    ),
    Case(
        "`self.trainer` in the module, for anything else",
        stepping(f"assert self.trainer.datamodule; return {LOSS}"),
        raw="loop=raw has no Trainer, but Own reads self.trainer.datamodule",
    ),
    Case(
        "`self.current_epoch`, `self.global_step`",
        stepping(f"assert self.global_step >= 0; return {LOSS}"),
        raw="loop=raw has no Trainer, but Own reads self.trainer.global_step",
    ),
    Case(
        "`self.logger`",
        stepping(
            f"self.logger.experiment.add_scalar('x', 1.0, 2); self.logger.log_metrics({{'x': 1.0}}); return {LOSS}"
        ),
        note="it accepts everything and stores nothing; values from `self.log` are recorded",
    ),
    Case(
        "hooks such as `on_train_batch_end`",
        "class Own(Module):\n    def on_train_batch_end(self, *_):\n        pass\n",
        raw="loop=raw does not call on_train_batch_end",
    ),
    Case(
        "`save_hyperparameters`",
        "class Own(Module):\n    def __init__(self, width=4):\n"
        "        super().__init__()\n        self.save_hyperparameters()\n"
        "        self.layer = torch.nn.Linear(self.hparams.width, 2)\n",
        model={"width": 4},
    ),
    Case(
        "a plain `torch.nn.Module`",
        "class Own(torch.nn.Linear):\n    pass\n",
        model={"in_features": 4, "out_features": 2},
        lightning="model=supervised model.network._target_=",
        raw="model=supervised model.network._target_=",
        note="the message gives the command that trains it",
    ),
    Case(
        "a module of `pytorch_lightning`",
        "import pytorch_lightning\nclass Own(pytorch_lightning.LightningModule):\n    pass\n",
        lightning="write `import lightning.pytorch as pl`",
        raw="write `import lightning.pytorch as pl`",
    ),
)


def table() -> str:
    """Return the table of the document."""
    lines = ["| model or data | `loop=lightning` | `loop=raw` | |", "|---|---|---|---|"]
    for case in CASES:
        settings = [case.what, *(_setting(case.expected(loop)) for loop in ("lightning", "raw")), case.note]
        lines.append("| " + " | ".join(settings) + " |")
    return "\n".join(lines) + "\n"


def _setting(expected: str) -> str:
    return expected if expected == WORKS else f"refused: *{expected}*"


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(before + BEGIN + "\n" + table() + "\n" + END + after)

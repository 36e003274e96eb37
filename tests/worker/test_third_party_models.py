"""Third-party modules: Lightning's demos, and networks of other libraries with random weights. No download."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import torch
from one_rank import BOTH_LOOPS
from polling import PATIENCE_SECONDS
from tiny_sweep import measure_sweep, plan_sweep

from accelsweep.results import Outcome

pytestmark = pytest.mark.real

DEMOS = "lightning.pytorch.demos"
BORING = f"{DEMOS}.boring_classes"
MODULE_DATA = {"_target_": "accelsweep.workloads.data_module.ModuleData"}
SUPERVISED = "accelsweep.workloads.lightning_modules.Supervised"
SETS = "accelsweep.workloads.user_datasets.DataSets"
QUICK = {
    "warmup_steps": 2,
    "min_steps": 8,
    "min_seconds": 0.0,
    "max_steps": 10,
    "quality_samples": 16,
    "quality_metric": "val_loss",
}
TRANSFORMERS = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed: accelsweep's extra `transformers`",
)
TOKENS = """
import torch
from torch.utils.data import Dataset

class Texts(Dataset):
    '''Random tokens with their class, as a tokenizer's mappings; a language model's labels are the tokens.'''

    def __init__(self, language_model=False):
        self.language_model = language_model

    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(100, (12,), generator=torch.Generator().manual_seed(index))
        labels = tokens if self.language_model else tokens[0] % 2
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels, "text": f"no {index}"}
"""
BERT = {
    "_target_": "transformers.BertForSequenceClassification",
    "config": {
        "_target_": "transformers.BertConfig",
        "vocab_size": 100,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 16,
    },
}
GPT2 = {
    "_target_": "transformers.AutoModelForCausalLM.from_config",
    "config": {
        "_target_": "transformers.GPT2Config",
        "vocab_size": 100,
        "n_positions": 16,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
    },
}


def random_set(name="RandomDataset", length=64):
    size = "length" if name == "RandomDataset" else "count"
    return {"_target_": SETS, "train": {"_target_": f"{BORING}.{name}", "size": 32, size: length}}


@BOTH_LOOPS
@pytest.mark.parametrize("data", ["RandomDataset", "RandomIterableDataset", "RandomIterableDatasetWithLen"])
def test_the_demo_model_trains_on_every_kind_of_dataset_with_its_own_optimiser(run, loop, data):
    result = run(loop=loop, model={"_target_": f"{BORING}.DemoModel"}, data=random_set(data), measure=QUICK)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.effective.optimizer == "Adam"
    assert result.metrics["learning_rate"].value == 0.02


@pytest.mark.parametrize("name", ["BoringModel", "ManualOptimBoringModel"])
@pytest.mark.parametrize("data", ["BoringDataModule", "BoringDataModuleNoLen", "its own"])
def test_boring_models_train_with_boring_data_and_with_their_own(run, name, data):
    """Their loaders hold one sample a batch and know no batch_size; their schedule goes by epochs."""
    given = MODULE_DATA if data == "its own" else {"_target_": f"{BORING}.{data}"}
    result = run(batch_size=1, model={"_target_": f"{BORING}.{name}"}, data=given, measure=QUICK)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert "it logs: nothing" in result.metrics["quality"].reason


def test_the_raw_loop_refuses_boring_models_with_a_reason(run):
    for name, reason in (("BoringModel", "steps a schedule after"), ("ManualOptimBoringModel", "one optimiser")):
        result = run(loop="raw", batch_size=1, model={"_target_": f"{BORING}.{name}"}, data=MODULE_DATA, measure=QUICK)
        assert result.outcome is Outcome.unsupported
        assert reason in result.reason


def test_boring_data_that_ignores_batch_size_is_refused(run):
    data = {"_target_": f"{BORING}.BoringDataModule"}
    result = run(batch_size=32, model={"_target_": f"{BORING}.BoringModel"}, data=data, measure=QUICK)
    assert "the data's first batch contains 1 samples, but batch_size=32" in result.reason


@pytest.fixture
def wikitext(tmp_path):
    """A text where Lightning's demos look for WikiText-2, in its form: words between spaces, a line a sentence."""
    (tmp_path / "data").mkdir()
    sentence = "the cat sat on the mat and the dog lay near the old door\n"
    (tmp_path / "data" / "wikitext-2.txt").write_text(sentence * 120)


@BOTH_LOOPS
def test_the_demo_transformer_trains_with_its_own_data(run, loop, wikitext):
    model = {"_target_": f"{DEMOS}.transformer.LightningTransformer", "vocab_size": 20}
    result = run(loop=loop, batch_size=1, model=model, data=MODULE_DATA, measure=QUICK)
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.metrics["quality"].reason == "the data or the module has no validation loop"


@BOTH_LOOPS
def test_the_demo_lstm_keeps_its_state_between_batches(run, loop, wikitext):
    """It defines on_train_epoch_end, which only Lightning calls. It is large, and a step takes half a second."""
    model = {"_target_": f"{DEMOS}.lstm.LightningLSTM", "vocab_size": 20}
    few = {**QUICK, "min_steps": 3, "max_steps": 3}
    result = run(loop=loop, batch_size=20, model=model, data=MODULE_DATA, measure=few)
    if loop == "raw":
        assert "loop=raw does not call on_train_epoch_end, which LightningLSTM defines" in result.reason
    else:
        assert (result.outcome, result.reason) == (Outcome.measured, None)
        assert result.metrics["logged.train_loss"].value is not None


@BOTH_LOOPS
def test_the_demo_network_trains_on_the_demo_mnist(run, loop, tmp_path, monkeypatch):
    """The set's own file format, with noise in it; the network is a plain torch.nn.Module."""
    monkeypatch.setenv("PL_USE_MOCKED_MNIST", "1")
    folder = tmp_path / "data" / "MNIST" / "complete"
    folder.mkdir(parents=True)
    for name in ("training.pt", "test.pt"):
        torch.save((torch.randint(2, (200, 28, 28), dtype=torch.uint8), torch.randint(10, (200,))), folder / name)
    result = run(
        loop=loop,
        model={
            "_target_": SUPERVISED,
            "network": {"_target_": f"{BORING}.Net"},
            "loss": {"_target_": "torch.nn.NLLLoss"},
        },
        data={"_target_": f"{DEMOS}.mnist_datamodule.MNISTDataModule", "val_split": 40, "num_workers": 0},
        measure={**QUICK, "quality_metric": "val_accuracy"},
    )
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.effective.batch_size == 8
    assert result.metrics["quality"].value is not None


@BOTH_LOOPS
@pytest.mark.parametrize(
    "network",
    [
        {"_target_": "torchvision.models.resnet18", "num_classes": 10},
        {"_target_": "timm.create_model", "model_name": "mobilenetv3_small_050", "num_classes": 10},
    ],
    ids=["torchvision", "timm"],
)
def test_networks_of_torchvision_and_timm_train(run, loop, network):
    """As `model=supervised model.network._target_=...` does it; laid out as a step of the ladder asks for."""
    package = network["_target_"].partition(".")[0]
    try:
        importlib.import_module(package)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{package} cannot be imported beside this torch: {error}")
    loss = {"_target_": "torch.nn.CrossEntropyLoss"}
    images = {"image_size": 32, "channels": 3, "classes": 10, "samples": 64}
    result = run(
        loop=loop,
        model={"_target_": SUPERVISED, "network": network, "loss": loss},
        channels_last=True,
        data={"_target_": "accelsweep.workloads.datasets.RandomImages", **images},
        measure={**QUICK, "quality_metric": "val_accuracy"},
    )
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    assert result.metrics["quality"].value is not None
    assert result.metrics["parameters"].value > 500_000


@pytest.mark.long  # test_user_models.py trains on mappings; only here two ranks train somebody's network on them
@TRANSFORMERS
def test_transformers_train_through_the_executor_in_both_loops_and_on_two_ranks(tmp_path):
    """A BERT classifier and a GPT-2 with random weights, on mappings that hold strings too."""
    home = tmp_path / "home"
    settings = [
        {**_texts(network, language_model), "loop": loop, "devices": devices}
        for network, language_model in ((BERT, False), (GPT2, True))
        for loop, devices in (("lightning", 1), ("raw", 1), ("lightning", 2))
    ]
    folder, block = plan_sweep(home, settings)
    (home / "own_texts.py").write_text(TOKENS)
    records, _ = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS, HF_HUB_OFFLINE="1")
    for record, setting in zip(records, settings, strict=True):
        assert (record.outcome, record.reason) == (Outcome.measured, None)
        assert record.effective.world_size == setting["devices"]
        assert record.metrics["quality"].value is not None, record.metrics["quality"].reason
        assert ("logged.val_accuracy" in record.metrics) == (setting["model"]["network"] is BERT)


def _texts(network, language_model):
    texts = {"_target_": "own_texts.Texts", "language_model": language_model}
    return {
        "batch_size": 4,
        "model": {"_target_": SUPERVISED, "network": network, "loss": None},
        "data": {"_target_": SETS, "train": texts, "validation": texts},
        "optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 0.001},
        "measure": QUICK,
    }

"""A config is validated where it enters, serialised as it was written, and read by attribute."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from tiny_sweep import CONFIG, config_with

from accelsweep.config.schema import changed, checked_config
from accelsweep.config.setting import setting_name
from accelsweep.installation import __version__
from accelsweep.json_documents import Document
from accelsweep.plain_json import canonical_json
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_record import Record
from accelsweep.run_config import LearningRate
from accelsweep.schedulers.protocol import Resources

EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
KINDS: tuple[tuple[type[Document], str], ...] = (
    (Manifest, "manifest.json"),
    (Record, "runs/*/record.json"),
    (Block, "blocks/b????????????.json"),
)


def test_a_config_is_serialised_as_it_was_written_with_unknown_keys() -> None:
    raw = {**CONFIG, "mine": {"a": [1, 2.0, None]}, "threads": None, "env": {"A": 3}}
    raw["measure"] = {**raw["measure"], "unknown": True, "min_seconds": 1}
    runs, axes, resources = (), {"c": {}}, Resources()
    block = Block(name="b", sweep="s", order_seed=0, runs=runs, configs={"c": raw}, axes=axes, resources=resources)
    assert canonical_json(block.model_dump(mode="json")["configs"]["c"]) == canonical_json(raw)
    config = block.configs["c"]
    assert (config.env, config.measure.min_seconds) == ({"A": "3"}, 1.0)
    assert setting_name(config.raw) == setting_name(raw)


def test_documents_of_finished_sweeps_round_trip_byte_for_byte(tmp_path: Path) -> None:
    """Except for the version that wrote them; manifests only need to be read back equal."""
    sweeps = [folder for folder in EXAMPLES.glob("*/sweeps/*") if folder.is_dir()]
    files = [(kind, path) for kind, at in KINDS for folder in sweeps for path in folder.glob(at)]
    assert len(files) > 20
    for kind, path in files:
        again = tmp_path / "again.json"
        kind.read(path).write(again)
        assert kind.read(again) == kind.read(path), path
        if kind is Block:
            writer = f'"version":"{__version__}",'.encode()
            assert again.read_bytes().replace(writer, b"") == path.read_bytes().replace(writer, b""), path


def test_configs_with_equal_mappings_are_equal() -> None:
    assert config_with() == config_with()
    assert config_with() != config_with(mine=1)


def test_missing_keys_are_read_as_their_defaults() -> None:
    optional = ("num_nodes", "launcher", "threads", "env", "task", "optimizer", "trainer")
    config = checked_config({key: value for key, value in CONFIG.items() if key not in optional})
    read = (config.num_nodes, config.launcher, config.threads, config.env, config.task, config.optimizer)
    assert read == (1, "fork", None, {}, "train_throughput", None)
    assert (config.measure.concurrency, config.measure.probe_steps, config.measure.fake_loader) == (1, None, False)
    assert set(config.raw).isdisjoint(optional), "raw stays as it was written"


@pytest.mark.parametrize("changes", [{"devices": "two"}, {"devices": 0}, {"accelerator": "tpu"}, {"measure": None}])
def test_an_invalid_config_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        config_with(**changes)


def test_learning_rate_keys_of_the_optimizer_are_typed() -> None:
    config = config_with(optimizer={"_target_": "torch.optim.SGD", "lr": 0.1, "lr_scaling": "sqrt", "warmup_steps": 4})
    assert config.learning_rate == LearningRate(lr_scaling="sqrt", warmup_steps=4)
    assert config_with(optimizer=None).learning_rate == LearningRate()


def test_ranks_and_samples_follow_from_devices_and_nodes() -> None:
    config = config_with(devices=4, num_nodes=2, batch_size=16)
    assert (config.world_size, config.samples_per_step) == (8, 128)


def test_a_changed_config_keeps_all_other_keys() -> None:
    config = config_with(mine={"a": 1})
    other = changed(config, batch_size=7, automatic="batch_size")
    assert other.raw == {**config.raw, "batch_size": 7, "automatic": "batch_size"}
    assert (other.batch_size, config.batch_size) == (7, CONFIG["batch_size"])
    with pytest.raises(ValidationError):
        changed(config, devices=0)

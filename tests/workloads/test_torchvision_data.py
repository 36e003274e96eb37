"""Sets of torchvision, and classes that are like them."""

from __future__ import annotations

import csv
import importlib

import pytest
import torch
from PIL import Image

from accelsweep.errors import InputError
from accelsweep.workloads.public_datasets import TorchvisionData

OWN = "accelsweep_pictures"


def why_no_torchvision():
    """None, or why torchvision cannot be imported."""
    try:
        importlib.import_module("torchvision.datasets")
    except (ImportError, RuntimeError) as error:
        return str(error)
    return None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve pictures in files with an index, and a class in a user's module that reads them as torchvision's do."""
    with (tmp_path / "index.csv").open("w") as index:
        for number in range(12):
            Image.new("RGB", (6, 4), (number, 0, 0)).save(tmp_path / f"{number}.png")
            csv.writer(index).writerow([f"{number}.png", number % 3])
    (tmp_path / f"{OWN}.py").write_text(
        """
import csv
import pathlib
from PIL import Image

class Indexed:
    def __init__(self, root, part="all", download=False):
        root = pathlib.Path(root)
        if download:
            (root / "downloaded").touch()
        rows = list(csv.reader((root / "index.csv").open()))
        self.rows = [(root / name, int(label)) for name, label in {"all": rows, "last": rows[-2:]}[part]]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        path, label = self.rows[number]
        return Image.open(path), label
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def of(folder, **settings):
    return TorchvisionData(dataset=f"{OWN}.Indexed", root=str(folder), batch_size=3, image_size=4, **settings)


def test_pictures_and_classes_are_those_of_the_files(folder):
    data = of(folder, validation={"part": "last"}, preprocess="device")
    images, classes, _ = next(iter(data.train_dataloader()))
    assert images.shape == (3, 3, 4, 4)
    assert torch.equal(images[:, 0, 0, 0] % 3, classes)
    held_out, _ = next(iter(data.val_dataloader()))
    assert held_out[:, 0, 0, 0].tolist() == [10, 11]
    assert data.epoch_samples == 12


def test_reading_ahead_of_time_or_in_other_processes_changes_nothing(folder):
    def batches(**settings):
        stream = iter(of(folder, preprocess="cpu", crop_padding=1, **settings).train_dataloader())
        return [next(stream) for _ in range(5)]

    reference = batches()
    for settings in ({"in_memory": True}, {"num_workers": 2}):
        for (images, classes), (theirs, targets) in zip(reference, batches(**settings), strict=True):
            assert torch.equal(images, theirs)
            assert torch.equal(classes, targets)


def test_a_set_is_downloaded_in_prepare_data_and_only_if_wanted(folder):
    of(folder).prepare_data()
    assert not (folder / "downloaded").exists()
    of(folder, download=True).prepare_data()
    assert (folder / "downloaded").exists()


@pytest.mark.skipif(why_no_torchvision() is None, reason="torchvision works here")
def test_a_missing_torchvision_is_told_with_what_to_install():
    with pytest.raises(InputError, match="install accelsweep's extra `torchvision`"):
        TorchvisionData(batch_size=4).setup("fit")


@pytest.mark.skipif(why_no_torchvision() is not None, reason=f"torchvision: {why_no_torchvision()}")
def test_an_image_folder_of_torchvision_is_read(tmp_path):
    for name, grey in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("L", (5, 5), grey).save(tmp_path / name / f"{number}.png")
    data = TorchvisionData(dataset="ImageFolder", root=str(tmp_path), batch_size=4, channels=1, preprocess="device")
    images, classes, _ = next(iter(data.train_dataloader()))
    assert torch.equal(images[:, 0, 0, 0] > 100, classes == 1)
    with pytest.raises(InputError, match="did you mean 'ImageFolder'"):
        TorchvisionData(dataset="ImageFolde", batch_size=4).setup("fit")

"""Data sets of Hugging Face's `datasets`, from local files in their real formats, and of torchvision."""

from __future__ import annotations

import csv
import importlib

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from accelsweep.errors import InputError
from accelsweep.workloads.public_datasets import HuggingFaceData, TorchvisionData, hash_words, image_to_tensor


def import_error(module):
    """None, or why `module` cannot be imported."""
    try:
        importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        return str(error)
    return None


NO_DATASETS, NO_TORCHVISION = import_error("datasets"), import_error("torchvision.datasets")
HUGGINGFACE = pytest.mark.skipif(NO_DATASETS is not None, reason=f"datasets: {NO_DATASETS}")
PIXELS = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)


def test_an_image_of_the_right_size_keeps_every_byte():
    tensor = image_to_tensor(Image.fromarray(PIXELS), channels=3, image_size=None)
    assert tensor.dtype is torch.uint8
    assert torch.equal(tensor, torch.from_numpy(PIXELS).permute(2, 0, 1))


def test_the_middle_is_cropped_after_scaling_the_shorter_side():
    columns = np.array([[0, 0, 100, 200, 0, 0]] * 2, dtype=np.uint8)
    tensor = image_to_tensor(Image.fromarray(columns), channels=1, image_size=2)
    assert tensor.tolist() == [[[100, 200], [100, 200]]]
    assert image_to_tensor(Image.fromarray(PIXELS), channels=3, image_size=8).shape == (3, 8, 8)


def test_grey_images_become_coloured_ones_and_vice_versa():
    grey = Image.new("L", (2, 2), 7)
    assert image_to_tensor(grey, channels=3, image_size=None).unique().tolist() == [7]
    assert image_to_tensor(Image.new("RGBA", (2, 3), (9, 9, 9, 255)), channels=1, image_size=None).shape == (1, 3, 2)


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(InputError, match="1 channel \\(greyscale\\) or 3"):
        image_to_tensor(Image.new("L", (2, 2)), channels=4, image_size=None)


def hugging_face(folder, path, load, **options):
    return HuggingFaceData(
        **{"batch_size": 4, "path": path, "load": {**load, "cache_dir": str(folder / "cache")}, **options}
    )


@pytest.fixture
def image_folder(tmp_path):
    """Two classes, a training and a test split."""
    for split, count in (("train", 6), ("test", 2)):
        for name, grey in (("cat", 10), ("dog", 200)):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (7, 5), (grey + number, 0, 0)).save(folder / f"{number}.png")
    return tmp_path


@HUGGINGFACE
def test_a_folder_of_images_is_read_with_its_classes(image_folder):
    load = {"data_dir": str(image_folder / "images")}
    data = hugging_face(image_folder, "imagefolder", load, validation="test", image_size=5, preprocess="device")
    data.prepare_data()
    images, classes, _ = next(iter(data.train_dataloader()))
    assert images.shape == (4, 3, 5, 5)
    assert torch.equal(images[:, 0, 0, 0] >= 200, classes == 1)
    held_out, _ = next(iter(data.val_dataloader()))
    assert sorted(held_out[:, 0, 0, 0].tolist()) == [10, 11, 200, 201]
    assert data.epoch_samples == 12


@HUGGINGFACE
def test_reading_images_once_or_onto_the_device_does_not_change_the_batches(image_folder):
    load = {"data_dir": str(image_folder / "images")}
    streams = []
    for options in ({}, {"in_memory": True}, {"placement": "resident", "device": torch.device("cpu")}):
        stream = iter(hugging_face(image_folder, "imagefolder", load, image_size=5, **options).train_dataloader())
        streams.append([next(stream) for _ in range(4)])
    for other in streams[1:]:
        for batch, other_batch in zip(streams[0], other, strict=True):
            assert all(torch.equal(*pair) for pair in zip(batch, other_batch, strict=True))


@HUGGINGFACE
def test_texts_in_parquet_become_hashed_words_and_string_classes_numbers(tmp_path):
    texts = [f"Good film number {number}!" if number % 2 else "a BAD film" for number in range(20)]
    labels = ["pos" if number % 2 else "neg" for number in range(20)]
    pd.DataFrame({"text": texts, "mood": labels}).to_parquet(tmp_path / "films.parquet")
    load = {"data_files": str(tmp_path / "films.parquet")}
    data = hugging_face(tmp_path, "parquet", load, inputs="text", target="mood", sequence=5, vocabulary=1000)
    tokens, classes = next(iter(data.train_dataloader()))
    good, bad = hash_words(["good", "a bad film"], 5, 1000)
    assert tokens.shape == (4, 5)
    assert torch.equal(tokens[:, 0] == good[0], classes == 1)
    assert torch.equal((tokens == bad).all(dim=1), classes == 0)


@HUGGINGFACE
def test_numbers_in_csv_become_standardised_vectors(tmp_path):
    numbers = np.random.default_rng(1).normal(50, 9, (40, 2))
    frame = pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "label": np.arange(40) % 3, "unused": "x"})
    frame.to_csv(tmp_path / "table.csv", index=False)
    load = {"data_files": str(tmp_path / "table.csv")}
    vectors, classes = next(
        iter(hugging_face(tmp_path, "csv", load, inputs=["a", "b"], batch_size=32).train_dataloader())
    )
    torch.testing.assert_close(vectors.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.std(dim=0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    assert sorted(classes.unique().tolist()) == [0, 1, 2]


@HUGGINGFACE
def test_unusable_columns_are_refused_with_what_to_change(tmp_path):
    pd.DataFrame({"text": ["a", "b"], "score": [0.5, 1.5]}).to_csv(tmp_path / "scores.csv", index=False)
    load = {"data_files": str(tmp_path / "scores.csv")}
    with pytest.raises(InputError, match=r"no column 'txt' \(did you mean 'text'\?\); it has text, score"):
        hugging_face(tmp_path, "csv", load, inputs="txt", target="score").setup("fit")
    with pytest.raises(InputError, match="which cannot be a class: use integers or strings"):
        hugging_face(tmp_path, "csv", load, inputs="text", target="score").setup("fit")


@HUGGINGFACE
@pytest.mark.parametrize("inputs", [["title", "body"], ["stars", "body"]])
def test_several_columns_of_texts_are_refused_rather_than_trained_on_the_first(tmp_path, inputs):
    films = {"title": ["A", "B"], "body": ["good", "bad"], "stars": [5, 1], "label": [1, 0]}
    pd.DataFrame(films).to_csv(tmp_path / "films.csv", index=False)
    with pytest.raises(InputError, match=rf"data\.inputs=\[{','.join(inputs)}\]: several columns must all be numeric"):
        hugging_face(tmp_path, "csv", {"data_files": str(tmp_path / "films.csv")}, inputs=inputs).setup("fit")


def labelled(folder, labels):
    """A table of numbers with ten rows for each of these labels."""
    frame = pd.DataFrame({"a": np.arange(10.0 * len(labels)), "label": list(labels) * 10})
    frame.to_parquet(folder / "labels.parquet")
    return hugging_face(folder, "parquet", {"data_files": str(folder / "labels.parquet")}, inputs="a", batch_size=8)


@HUGGINGFACE
@pytest.mark.parametrize("labels", [[1, 3], [2, 1_000_000_000_000], [False, True]])
def test_integers_are_their_own_class_indices_with_their_gaps(tmp_path, labels):
    """A large number takes no longer than a small one."""
    training, validation = labelled(tmp_path, labels).read()
    classes = torch.cat([training.tensors[1], validation.tensors[1]])
    assert classes.unique().tolist() == labels


@HUGGINGFACE
@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([-1, 1], r"data\.target=label contains -1, which is not a class: integers start at 0; renumber the column"),
        (["good", None], r"data\.target=label: some rows have no class; choose a split or a file without such rows"),
    ],
)
def test_a_row_without_a_class_is_refused_with_the_column(tmp_path, labels, why):
    with pytest.raises(InputError, match=why):
        labelled(tmp_path, labels).setup("fit")


@HUGGINGFACE
def test_named_classes_that_a_test_set_withholds_are_refused_with_the_column(tmp_path):
    """Many of the hub's test splits hold -1 in place of each class."""
    import datasets

    features = datasets.Features({"a": datasets.Value("float32"), "label": datasets.ClassLabel(names=["no", "yes"])})
    columns = {"a": [0.0, 1.0] * 10, "label": [-1] * 20}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(str(tmp_path / "withheld.parquet"))
    data = hugging_face(tmp_path, "parquet", {"data_files": str(tmp_path / "withheld.parquet")}, inputs="a")
    with pytest.raises(InputError, match=r"data\.target=label contains -1"):
        data.setup("fit")


def test_words_have_the_same_hash_everywhere_and_texts_are_cut_and_padded():
    rows = hash_words(["The film, the FILM", "", "a b c d e"], sequence=4, vocabulary=100)
    assert rows.shape == (3, 4)
    assert rows[0].tolist() == [rows[0, 0], rows[0, 1]] * 2
    assert rows[1].tolist() == [0] * 4
    assert ((rows[0] > 0) & (rows[0] < 100)).all()
    assert hash_words(["film"], 1, 20_000).item() == 1 + 2_185_543_202 % 19_999


USER_MODULE = "accelsweep_images"


@pytest.fixture
def indexed_images(tmp_path, monkeypatch):
    """Twelve image files with an index, and a class in a user's module that reads them like torchvision's do."""
    with (tmp_path / "index.csv").open("w") as index:
        for number in range(12):
            Image.new("RGB", (6, 4), (number, 0, 0)).save(tmp_path / f"{number}.png")
            csv.writer(index).writerow([f"{number}.png", number % 3])
    (tmp_path / f"{USER_MODULE}.py").write_text(
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


def torchvision_data(folder, **options):
    return TorchvisionData(dataset=f"{USER_MODULE}.Indexed", root=str(folder), batch_size=3, image_size=4, **options)


def test_images_and_classes_are_those_of_the_files(indexed_images):
    data = torchvision_data(indexed_images, validation={"part": "last"}, preprocess="device")
    images, classes, _ = next(iter(data.train_dataloader()))
    assert images.shape == (3, 3, 4, 4)
    assert torch.equal(images[:, 0, 0, 0] % 3, classes)
    held_out, _ = next(iter(data.val_dataloader()))
    assert held_out[:, 0, 0, 0].tolist() == [10, 11]
    assert data.epoch_samples == 12


def test_reading_images_once_or_in_loader_workers_does_not_change_the_batches(indexed_images):
    def batches(**options):
        data = torchvision_data(indexed_images, preprocess="cpu", crop_padding=1, **options)
        stream = iter(data.train_dataloader())
        return [next(stream) for _ in range(5)]

    reference = batches()
    for options in ({"in_memory": True}, {"num_workers": 2}):
        for batch, other_batch in zip(reference, batches(**options), strict=True):
            assert all(torch.equal(*pair) for pair in zip(batch, other_batch, strict=True))


def test_a_set_is_downloaded_in_prepare_data_and_only_if_asked_for(indexed_images):
    torchvision_data(indexed_images).prepare_data()
    assert not (indexed_images / "downloaded").exists()
    torchvision_data(indexed_images, download=True).prepare_data()
    assert (indexed_images / "downloaded").exists()


@pytest.mark.skipif(NO_TORCHVISION is None, reason="torchvision works here")
def test_a_missing_torchvision_is_reported_with_what_to_install():
    with pytest.raises(InputError, match="install accelsweep's extra `torchvision`"):
        TorchvisionData(batch_size=4).setup("fit")


@pytest.mark.skipif(NO_TORCHVISION is not None, reason=f"torchvision: {NO_TORCHVISION}")
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

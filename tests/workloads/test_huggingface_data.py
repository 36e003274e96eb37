"""Sets of Hugging Face's `datasets`, from local files in their true formats."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from accelsweep.errors import InputError
from accelsweep.workloads.public_datasets import HuggingFaceData, hash_words

pytest.importorskip("datasets", reason="accelsweep's extra `huggingface` is not installed")


def of(folder, path, load, **settings):
    return HuggingFaceData(
        **{"batch_size": 4, "path": path, "load": {**load, "cache_dir": str(folder / "cache")}, **settings}
    )


@pytest.fixture
def pictures(tmp_path):
    """An image folder: two classes, a training and a test split."""
    for split, count in (("train", 6), ("test", 2)):
        for name, grey in (("cat", 10), ("dog", 200)):
            folder = tmp_path / "pictures" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (7, 5), (grey + number, 0, 0)).save(folder / f"{number}.png")
    return tmp_path


def test_a_folder_of_pictures_is_read_with_its_classes(pictures):
    load = {"data_dir": str(pictures / "pictures")}
    data = of(pictures, "imagefolder", load, validation="test", image_size=5, preprocess="device")
    data.prepare_data()
    images, classes, _ = next(iter(data.train_dataloader()))
    assert images.shape == (4, 3, 5, 5)
    assert torch.equal(images[:, 0, 0, 0] >= 200, classes == 1)
    held_out, _ = next(iter(data.val_dataloader()))
    assert sorted(held_out[:, 0, 0, 0].tolist()) == [10, 11, 200, 201]
    assert data.epoch_samples == 12


def test_pictures_may_be_read_once_and_kept_where_the_training_is(pictures):
    load = {"data_dir": str(pictures / "pictures")}
    batches = []
    for settings in ({}, {"in_memory": True}, {"placement": "resident", "device": torch.device("cpu")}):
        stream = iter(of(pictures, "imagefolder", load, image_size=5, **settings).train_dataloader())
        batches.append([next(stream) for _ in range(4)])
    for other in batches[1:]:
        for ours, theirs in zip(batches[0], other, strict=True):
            assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_texts_in_parquet_become_numbered_words_and_string_classes_numbers(tmp_path):
    texts = [f"Good film number {number}!" if number % 2 else "a BAD film" for number in range(20)]
    labels = ["pos" if number % 2 else "neg" for number in range(20)]
    pd.DataFrame({"text": texts, "mood": labels}).to_parquet(tmp_path / "films.parquet")
    load = {"data_files": str(tmp_path / "films.parquet")}
    data = of(tmp_path, "parquet", load, inputs="text", target="mood", sequence=5, vocabulary=1000)
    tokens, classes = next(iter(data.train_dataloader()))
    good, bad = hash_words(["good", "a bad film"], 5, 1000)
    assert tokens.shape == (4, 5)
    assert torch.equal(tokens[:, 0] == good[0], classes == 1)
    assert torch.equal((tokens == bad).all(dim=1), classes == 0)


def test_numbers_in_csv_become_standardised_vectors(tmp_path):
    numbers = np.random.default_rng(1).normal(50, 9, (40, 2))
    frame = pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "label": np.arange(40) % 3, "unused": "x"})
    frame.to_csv(tmp_path / "table.csv", index=False)
    data = of(tmp_path, "csv", {"data_files": str(tmp_path / "table.csv")}, inputs=["a", "b"], batch_size=32)
    vectors, classes = next(iter(data.train_dataloader()))
    torch.testing.assert_close(vectors.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.std(dim=0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    assert sorted(classes.unique().tolist()) == [0, 1, 2]


def test_what_cannot_be_used_is_refused_with_what_to_change(tmp_path):
    pd.DataFrame({"text": ["a", "b"], "score": [0.5, 1.5]}).to_csv(tmp_path / "scores.csv", index=False)
    load = {"data_files": str(tmp_path / "scores.csv")}
    with pytest.raises(InputError, match=r"no column 'txt' \(did you mean 'text'\?\); it has text, score"):
        of(tmp_path, "csv", load, inputs="txt", target="score").setup("fit")
    with pytest.raises(InputError, match="which is no class: use integers or strings"):
        of(tmp_path, "csv", load, inputs="text", target="score").setup("fit")


@pytest.mark.parametrize("inputs", [["title", "body"], ["stars", "body"]])
def test_several_columns_of_texts_are_refused_rather_than_trained_on_the_first(tmp_path, inputs):
    films = {"title": ["A", "B"], "body": ["good", "bad"], "stars": [5, 1], "label": [1, 0]}
    pd.DataFrame(films).to_csv(tmp_path / "films.csv", index=False)
    with pytest.raises(InputError, match=rf"data\.inputs=\[{','.join(inputs)}\]: several columns must all be numbers"):
        of(tmp_path, "csv", {"data_files": str(tmp_path / "films.csv")}, inputs=inputs).setup("fit")


def labelled(folder, labels, **settings):
    """Ten rows for each of these labels, as a table of numbers."""
    frame = pd.DataFrame({"a": np.arange(10.0 * len(labels)), "label": list(labels) * 10})
    frame.to_parquet(folder / "labels.parquet")
    load = {"data_files": str(folder / "labels.parquet")}
    return of(folder, "parquet", load, inputs="a", batch_size=8, **settings)


@pytest.mark.parametrize("labels", [[1, 3], [2, 1_000_000_000_000], [False, True]])
def test_integers_are_their_own_class_numbers_with_their_gaps(tmp_path, labels):
    """A number is no more work for being large."""
    training, validation = labelled(tmp_path, labels).read()
    classes = torch.cat([training.tensors[1], validation.tensors[1]])
    assert classes.unique().tolist() == labels


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([-1, 1], r"data\.target=label holds -1, which is no class: integers count from 0; renumber the column"),
        (["good", None], r"data\.target=label: some rows have no class; name a split or a file without them"),
    ],
)
def test_a_row_without_a_class_number_is_refused_with_the_column(tmp_path, labels, why):
    with pytest.raises(InputError, match=why):
        labelled(tmp_path, labels).setup("fit")


def test_named_classes_that_a_test_set_withholds_are_refused_with_the_column(tmp_path):
    """Many of the hub's test splits hold -1 in place of each class."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"a": datasets.Value("float32"), "label": datasets.ClassLabel(names=["no", "yes"])})
    columns = {"a": [0.0, 1.0] * 10, "label": [-1] * 20}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(str(tmp_path / "withheld.parquet"))
    data = of(tmp_path, "parquet", {"data_files": str(tmp_path / "withheld.parquet")}, inputs="a")
    with pytest.raises(InputError, match=r"data\.target=label holds -1"):
        data.setup("fit")


def test_words_are_numbered_alike_everywhere_and_texts_are_cut_and_filled_up():
    rows = hash_words(["The film, the FILM", "", "a b c d e"], sequence=4, vocabulary=100)
    assert rows.shape == (3, 4)
    assert rows[0].tolist() == [rows[0, 0], rows[0, 1]] * 2
    assert rows[1].tolist() == [0] * 4
    assert ((rows[0] > 0) & (rows[0] < 100)).all()
    assert hash_words(["film"], 1, 20_000).item() == 1 + 2_185_543_202 % 19_999

"""Counting what was really processed."""

from __future__ import annotations

import pytest
import torch

from accelsweep.measure.samples import samples_in


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.zeros(5, 2), 5),
        ((torch.zeros(7, 2), torch.zeros(7)), 7),
        ({"ids": torch.zeros(3, 9), "labels": torch.zeros(3)}, 3),
        ({"meta": None, "inner": [{"x": torch.zeros(4)}]}, 4),
        (["a", "b", "c"], 3),
        ((["a", "b"], torch.zeros(2)), 2),
        (torch.tensor(1.0), None),
        ({}, None),
        (object(), None),
    ],
)
def test_a_batch_holds_as_many_samples_as_its_first_tensor_is_long(batch, expected):
    assert samples_in(batch) == expected

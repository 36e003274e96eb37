"""Messages help: the nearest known word is offered, and nothing when nothing is near."""

from accelsweep.base.errors import nearest


def test_the_nearest_word_is_offered():
    assert nearest("batchsize", ["batch_size", "precision"]) == " (did you mean 'batch_size'?)"


def test_nothing_is_offered_when_nothing_is_near():
    assert nearest("xyz", ["batch_size", "precision"]) == ""

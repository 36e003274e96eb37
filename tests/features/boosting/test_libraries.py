"""Boosted trees: rows that can be learnt, and three libraries that learn the same from them."""

import inspect

import pytest
from hydra.utils import get_object
from tiny_sweep import config_with

from accelsweep.devices.memory_limits import FreeMemory
from accelsweep.errors import InputError, Unsupported
from accelsweep.features.boosting.boosters import build_booster, fit_of
from accelsweep.features.boosting.libraries import LIBRARIES
from accelsweep.features.boosting.rows import MadeRows, sets_of
from accelsweep.features.boosting.task import area_under_curve

GIVEN = {"device": "cpu", "threads": 1, "seed": 1, "classes": 2}
ROOM = FreeMemory(10**9, "machine memory")


def rows(seed=1, **changes):
    return sets_of(MadeRows(**{"rows": 4000, "held_out": 2000, "batch_size": 1, "seed": seed, **changes}), ROOM)


def test_a_seed_draws_the_same_rows_and_another_one_others_of_the_same_rule():
    first, again, other = rows(1), rows(1), rows(2)
    assert (first.training.features == again.training.features).all()
    assert (first.training.labels == again.training.labels).all()
    assert (first.training.features != other.training.features).all()
    assert 0.4 < first.training.labels.mean() < 0.6
    assert (len(first.training.labels), len(first.held_out.labels), first.classes) == (4000, 2000, 2)


def area(target, training, held_out, **keys):
    booster = build_booster(config_with(model={"_target_": target, "rounds": 30, **keys}), **GIVEN)
    fit, apart = fit_of(booster, *training)
    fit()
    return area_under_curve(booster, held_out).value, apart


def test_the_libraries_learn_the_same_from_the_same_rows():
    sets = rows()
    areas = []
    for target, library in LIBRARIES.items():
        pytest.importorskip(library.module)
        areas.append(area(target, sets.training, sets.held_out)[0])
    assert min(areas) > 0.8
    assert max(areas) - min(areas) < 0.02


@pytest.mark.parametrize("target", [target for target, library in LIBRARIES.items() if library.module != "sklearn"])
def test_rows_prepared_apart_give_the_same_trees_as_rows_prepared_in_each_fit(target):
    pytest.importorskip(LIBRARIES[target].module)
    sets = rows()
    found = [area(target, sets.training, sets.held_out, prepare=prepare) for prepare in ("apart", "in_fit")]
    assert found == [(found[0][0], True), (found[0][0], False)]


@pytest.mark.parametrize(("target", "library"), LIBRARIES.items())
def test_the_plan_knows_of_each_class_what_it_can_do(target, library):
    named = get_object(target)
    assert ("device" in inspect.signature(named).parameters) == (library.accelerators != ("cpu",))
    assert hasattr(named, "together") == library.shares


def test_what_names_no_device_is_for_the_cpu_only():
    model = {"_target_": "accelsweep.features.boosting.boosters.HistGradientBoosting"}
    with pytest.raises(Unsupported, match="has no argument `device`, so it runs on the CPU"):
        build_booster(config_with(model=model), **{**GIVEN, "device": "cuda:0"})
    with pytest.raises(Unsupported, match="scikit-learn bins the rows in each fit"):
        build_booster(config_with(model={**model, "prepare": "apart"}), **GIVEN)
    with pytest.raises(InputError, match="did you mean 'in_fit'"):
        build_booster(config_with(model={**model, "prepare": "in_fits"}), **GIVEN)
    with pytest.raises(InputError, match=r"model.dept: .* has no such argument"):
        build_booster(config_with(model={**model, "dept": 3}), **GIVEN)


def test_rows_are_weighed_before_they_are_made():
    twice = 2 * 4 * 20 * 6000
    assert rows().classes == 2
    sets_of(MadeRows(rows=4000, held_out=2000, batch_size=1), FreeMemory(twice, "RLIMIT_DATA"))
    with pytest.raises(MemoryError, match=r"0.00096 GB are free per rank .RLIMIT_DATA.: lower data.rows"):
        sets_of(MadeRows(rows=4000, held_out=2000, batch_size=1), FreeMemory(twice - 1, "RLIMIT_DATA"))


def test_a_million_may_be_written_as_1e6():
    assert len(rows(rows=1e3).training.labels) == 1000
    with pytest.raises(InputError, match=r"data.rows=0.5: must be a whole number"):
        rows(rows=0.5)


@pytest.mark.parametrize("keys", [{"features": 5}, {"rows": 1}, {"held_out": -1}])
def test_fewer_columns_than_the_rule_has_are_refused(keys):
    with pytest.raises(InputError, match="at least 2 rows, 6 features and 0 held-out rows are required"):
        rows(**keys)


def test_rows_of_one_class_have_no_area_but_a_reason():
    sets = rows()
    one = sets.held_out._replace(labels=sets.held_out.labels * 0)
    booster = build_booster(config_with(model={"_target_": next(reversed(LIBRARIES)), "rounds": 1}), **GIVEN)
    booster.fit(*sets.training)
    assert "class" in area_under_curve(booster, one).reason
    assert area_under_curve(booster, None).reason == "the data set has no held-out rows"

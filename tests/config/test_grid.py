"""Expanding shares structure, yet gives exactly what composing each point through Hydra gives."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.types import Quote, QuotedString
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from accelsweep.config.grid import expand
from accelsweep.config.hydra import Composer
from accelsweep.errors import InputError

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda t: "${" not in t and t != "???")
quoted = st.builds(lambda t, quote: QuotedString(t, quote).with_quotes(), text, st.sampled_from(Quote))
number = st.one_of(st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False)).map(str)
scalar = st.one_of(
    quoted, number, st.sampled_from(["null", "true", "false", "abc", "1e-3", "${seed}", "${model.width}"])
)
structure = st.sampled_from(["{a: 1}", "[1, 2]", "{b: {c: x}}"])

CHANGED = ["seed", "note", "batch_size", "model.width", "model.rate", "model.size", "trainer.strategy", "doubled"]
ADDED = ["+fresh", "+fresh.deep", "fresh", "+model.extra", "++note", "++model.width", "++trainer.max_time", "+env.NAME"]


def sweep(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, min_size=1, max_size=2).map(lambda drawn: f"choice({','.join(drawn)})")


override = st.one_of(
    st.builds("{}={}".format, st.sampled_from(CHANGED), st.one_of(scalar, sweep(scalar))),
    st.builds("{}={}".format, st.sampled_from(ADDED), st.one_of(scalar, structure, sweep(scalar))),
    st.sampled_from(["model=small,big", "optimizer=sgd,adam", "~optimizer", "~trainer.strategy", "model=other"]),
    st.sampled_from(
        ["+twin=${model}", "+twin=${.note}", "+deep='${model.${word}}'", "+word=width", "pair.1=5,6", "model.inner=7"]
    ),
)


def whole(composer: Composer, job: tuple[str, ...]) -> dict:
    found = composer.compose(job)
    config = OmegaConf.masked_copy(found, [key for key in found if key != "hydra"])
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def every_point(composer: Composer, overrides: list[str]) -> list[dict]:
    return [whole(composer, job) for job in composer.grid(composer.master(overrides)).jobs]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(override, max_size=5))
def test_expanding_agrees_with_composing_each_point_through_hydra(conf, overrides):
    composer = Composer([conf])
    try:
        grid = composer.grid(composer.master(overrides))
        points = list(expand(composer, grid, "cpu"))
    except InputError:
        event("refused")
        with pytest.raises((InputError, OmegaConfBaseException)):
            every_point(composer, overrides)
        return
    event("planned")
    for job, point in zip(grid.jobs, points, strict=True):
        assert {**point.config, **point.plan_config} == whole(composer, job)


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text)
def test_any_text_reaches_the_config_unchanged(conf, value):
    composer = Composer([conf])
    line = f"note={QuotedString(value, Quote.double).with_quotes()}"
    (point,) = expand(composer, composer.grid(composer.master([line])), "cpu")
    assert point.config["note"] == value


def points_of(composer: Composer, *overrides: str, auto: str = "cpu") -> list:
    return list(expand(composer, composer.grid(composer.master(list(overrides))), auto))


def test_hydra_composes_once_per_choice_of_groups(composer, monkeypatch):
    composed = []
    compose = composer.compose
    monkeypatch.setattr(composer, "compose", lambda lines: composed.append(lines) or compose(lines))
    points = points_of(composer, "model=small,big", "batch_size=range(1,21)", "trainer.max_time=1,2")
    assert len(points) == 80
    assert len(composed) == 2


def test_values_of_an_added_key_need_no_further_composition(composer, monkeypatch):
    composed = []
    compose = composer.compose
    monkeypatch.setattr(composer, "compose", lambda lines: composed.append(lines) or compose(lines))
    points = points_of(
        composer, "model=small,big", "+model.extra=range(0,20)", "++env.NAME=a,b", "+twin=${model.extra}"
    )
    assert len(points) == 80
    assert len(composed) == 2
    assert [(p.config["model"]["extra"], p.config["twin"], p.config["env"]["NAME"]) for p in points[1:4]] == [
        (0, 0, "b"),
        (1, 1, "a"),
        (1, 1, "b"),
    ]


def test_an_added_key_and_another_override_of_it_are_left_to_hydra(composer):
    points = points_of(composer, "+fresh.deep=1,2", "++fresh.deep=3,4")
    assert [point.config["fresh"] for point in points] == [{"deep": 3}, {"deep": 4}] * 2
    with pytest.raises(InputError, match="'seed' already exists"):
        points_of(composer, "+fresh=1,2", "+fresh=3,4", "+seed=5,6")


def test_points_share_unchanged_structure(composer):
    first, second = points_of(composer, "trainer.max_time=1,2")
    assert first.config["model"] is second.config["model"]
    assert first.config["trainer"] == {"strategy": "auto", "max_time": 1}
    assert second.config["trainer"] == {"strategy": "auto", "max_time": 2}


def test_points_share_the_parts_in_which_they_agree(composer):
    points = points_of(composer, "optimizer.lr=0.1,0.2,0.3", "trainer.max_time=1,true,0.0,-0.0")
    parts = {key: {id(point.config[key]) for point in points} for key in points[0].config}
    assert {key: len(ids) for key, ids in parts.items() if len(ids) > 1} == {"optimizer": 3, "trainer": 4}
    assert [repr(point.config["trainer"]["max_time"]) for point in points[:4]] == ["1", "True", "0.0", "-0.0"]


def test_axes_hold_the_resolved_values_in_sweep_order(composer):
    points = points_of(composer, "model=small,big", "batch_size=${seed},7", "+model.extra=1,2", "seed=3")
    assert [point.axes for point in points[:3]] == [
        {"model": "small", "batch_size": 3, "model.extra": 1},
        {"model": "small", "batch_size": 3, "model.extra": 2},
        {"model": "small", "batch_size": 7, "model.extra": 1},
    ]


def test_auto_becomes_the_sites_accelerator_in_references_too(composer):
    (point,) = points_of(composer, "accelerator=auto", "+where=${accelerator}", auto="cuda")
    assert (point.config["accelerator"], point.config["where"]) == ("cuda", "cuda")
    swept = points_of(composer, "accelerator=auto,cpu", auto="mps")
    assert [point.axes["accelerator"] for point in swept] == ["mps", "cpu"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["repeats=3,5"], ["'repeats' cannot be swept"]),
        (["+a='${now:%Y}'"], ["'a'", "now"]),
        (["+a='${oc.env:HOME}'"], ["'a'", "oc.env"]),
        (["+a={b: ['${oc.env:HOME}']}"], ["'a.b.[0]'", "oc.env"]),
        (["+a='x${oc.decode:${oc.env:HOME}}'"], ["'a'", "oc.decode"]),
        (["+a='${hydra:runtime.cwd}'"], ["'a'", "hydra"]),
        (["+a=${hydra.runtime.cwd}"], ["'a'", "hydra.runtime.cwd"]),
        (["+a=${repeats}"], ["'a'", "repeats", "whole sweep"]),
        (["+a=${batchsize}"], ["'a'", "batch_size"]),
        (["+a=???"], ["'a'", "???"]),
        (["repeats='${oc.env:HOME}'"], ["'repeats'", "oc.env"]),
    ],
)
def test_values_that_depend_on_time_or_place_are_refused(composer, overrides, words):
    with pytest.raises(InputError) as caught:
        points_of(composer, *overrides)
    for word in words:
        assert word in str(caught.value)


def test_a_colon_between_interpolations_is_no_resolver(composer):
    (point,) = points_of(composer, "+a='${note}:${seed}'")
    assert point.config["a"] == "plain:1"


def test_job_options_may_read_the_environment(composer, monkeypatch):
    monkeypatch.setenv("MY_ACCOUNT", "physics")
    (point,) = points_of(composer, "+site.slurm.account='${oc.env:MY_ACCOUNT}'")
    assert point.plan_config["site"] == {"slurm": {"account": "physics"}}
    assert "site" not in point.config

"""What was composed before changes nothing: each composition is the one that Hydra's own loader makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from accelsweep.config.hydra import CONFIG_NAME, Composer
from accelsweep.errors import InputError

ONE_AFTER_ANOTHER = (
    ["batch_size=64", "model.width=8", "+model.extra=1", "pair.0=7"],
    [],
    ["model=big", "model.inner.depth=9", "~note", "sentence=short"],
    ["experiment=both", "model.width=3"],
    ["model=big"],
    ["+optimizer@second=adam", "second.lr=2"],
    ["+optimizer@second=adam"],
    ["~optimizer"],
    [],
)


def by_hydra(composer: Composer, lines: list[str], mode: RunMode) -> DictConfig:
    loader = ConfigLoaderImpl(composer.loader.config_search_path)
    return loader.load_configuration(CONFIG_NAME, lines, run_mode=mode, from_shell=False)


@pytest.mark.parametrize("mode", [RunMode.RUN, RunMode.MULTIRUN])
def test_one_composer_composes_one_after_another_what_hydra_composes_each_time_anew(
    conf: Path, composer: Composer, mode: RunMode
) -> None:
    for lines in ONE_AFTER_ANOTHER:
        ours, theirs = composer._load(lines, mode), by_hydra(composer, lines, mode)
        assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs)
        assert list(ours.hydra.overrides.task) == lines


def test_what_cannot_be_composed_leaves_nothing_behind(composer: Composer) -> None:
    for wrong in (["model.nonsense=1"], ["model=nonsense"], ["~nonsense"]):
        with pytest.raises(InputError):
            composer.compose(wrong)
    assert OmegaConf.to_yaml(composer.compose([])) == OmegaConf.to_yaml(by_hydra(composer, [], RunMode.RUN))


def test_a_folder_that_the_command_line_adds_is_looked_into_for_its_own_compositions_only(
    composer: Composer, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "theirs.yaml").write_text("_target_: theirs.Net\n")
    there = f"hydra.searchpath=['file://{tmp_path}']"
    assert composer.compose([there, "model=theirs"]).model == {"_target_": "theirs.Net"}
    with pytest.raises(InputError, match="theirs"):
        composer.compose(["model=theirs"])
    assert composer.compose([there, "model=theirs"]).model == {"_target_": "theirs.Net"}


def test_a_file_that_was_edited_counts_in_the_next_plan(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\n")
    assert Composer([tmp_path]).compose([]).a == 1
    (tmp_path / "config.yaml").write_text("a: 2\n")
    assert Composer([tmp_path]).compose([]).a == 2

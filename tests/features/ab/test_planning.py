"""Versions as an axis: each setting is named with its version, and its versions share every block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from user_repository import FILES, MODULE, write

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import InputError
from accelsweep.features.ab.planning import versioned_grid
from accelsweep.plain_json import sha256_text
from accelsweep.planning.checked_grid import comparison_name
from accelsweep.planning.plan import Plan, make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.run_config import Run

pytestmark = pytest.mark.heavy

TOY = ["experiment=toy"]


@pytest.fixture
def home(home: Path) -> Path:
    """A working directory with the module and the experiment that the trees of its versions have."""
    write(home, FILES)
    return home


def tree(home: Path, name: str, files: dict[str, str], digest: str | None = None) -> Tree:
    """Return a version whose tree holds the default files, with some replaced."""
    version = Version(name=name, kind="commit", digest=digest or sha256_text(name)[:40])
    write(SweepFolder(home, "ab").version(version.id), {**FILES, **files})
    return Tree(version=version, checkout=str(home), place=".")


def planned(
    home: Path, *trees: Tree, overrides: Sequence[str] = (), experiment: Sequence[str] = TOY, **asked: Any
) -> Plan:
    given = [*experiment, *overrides]
    return make_plan(home, given, name="ab", versioned=versioned_grid(SweepFolder(home, "ab"), trees, given), **asked)


@pytest.fixture
def two(home: Path) -> tuple[Tree, Tree]:
    return tree(home, "main", {}), tree(home, "HEAD", {"toy.py": MODULE + "# slower\n"})


def settings(plan: Plan) -> dict[tuple[int, str], str]:
    return {(setting.axes["batch_size"], setting.axes["version"]): setting.name for setting in plan.settings}


def test_a_settings_name_depends_on_the_commit_and_not_on_the_branch_name(home: Path, two: tuple[Tree, Tree]) -> None:
    main, head = two
    names = settings(planned(home, main, head, overrides=("batch_size=8,16",)))
    assert len(set(names.values())) == 4
    renamed = main.model_copy(update={"version": main.version.model_copy(update={"name": "v1"})})
    again = settings(planned(home, renamed, head, overrides=("batch_size=8,16",)))
    assert again[8, "v1"] == names[8, "main"]
    moved = settings(planned(home, main, tree(home, "HEAD", {}, digest="f" * 40), overrides=("batch_size=8,16",)))
    assert moved[8, "HEAD"] != names[8, "HEAD"]


def test_every_block_holds_every_setting_in_every_version_once(home: Path, two: tuple[Tree, Tree]) -> None:
    plan = planned(home, *two, overrides=("batch_size=8,16", "repeats=3"))
    names = sorted(settings(plan).values())
    assert [sorted(Run.parse(run).setting for run in block.runs) for block in plan.manifest.blocks] == [names] * 3


def test_a_small_block_keeps_the_versions_of_a_setting_together(home: Path, two: tuple[Tree, Tree]) -> None:
    plan = planned(home, *two, overrides=("batch_size=8,16,32", "block.size=3"))
    for block in plan.new_blocks:
        assert set(Counter(str(block.configs[run.setting].batch_size) for run in block.runs).values()) == {2}
    with pytest.raises(InputError, match="must share a block"):
        planned(home, *two, overrides=("block.size=1",))


def test_more_repeats_add_blocks_and_keep_the_old_ones(home: Path, two: tuple[Tree, Tree]) -> None:
    first = planned(home, *two)
    write_plan(home, first)
    grown = planned(home, *two, add_repeats=2)
    assert [block.name for block in grown.manifest.blocks[:2]] == [block.name for block in first.manifest.blocks]
    assert len(grown.new_blocks) == 2
    third = planned(home, *two, tree(home, "fix", {"toy.py": MODULE + "# fixed\n"}))
    assert all(len(block.runs) == 3 for block in third.manifest.blocks), "no old block holds all three"


def test_a_decided_setting_gets_no_more_blocks_in_any_version(home: Path, two: tuple[Tree, Tree]) -> None:
    sizes = ("batch_size=8,16",)
    names = settings(planned(home, *two, overrides=sizes))
    plan = planned(home, *two, overrides=sizes, until_decided=True, total_repeats=5, decided_at={names[8, "HEAD"]: 3})
    counted = Counter(Run.parse(run).setting for run in plan.manifest.wanted_runs())
    assert counted == {name: 3 if size == 8 else 5 for (size, _), name in names.items()}


def test_each_setting_has_its_baseline_in_the_first_version(home: Path, two: tuple[Tree, Tree]) -> None:
    plan = planned(home, *two, overrides=("batch_size=8,16",))
    names, partners = settings(plan), plan.manifest.partners
    assert partners == {names[size, version]: names[size, "main"] for size in (8, 16) for version in ("main", "HEAD")}


def test_a_sweep_without_versions_compares_none(home: Path) -> None:
    plan = make_plan(home, TOY)
    assert plan.manifest.compared == ()
    folder = write_plan(home, plan)
    assert Manifest.read(folder.manifest) == plan.manifest
    assert not folder.versions.exists()


def test_the_compared_versions_are_written_with_their_trees(home: Path, two: tuple[Tree, Tree]) -> None:
    folder = write_plan(home, planned(home, *two))
    assert Manifest.read(folder.manifest).compared == tuple(tree.version for tree in two)
    assert Tree.read(folder.version_file(two[0].version.id)).packages == ("toy",)


def test_a_module_missing_in_one_version_is_refused_by_name(home: Path, two: tuple[Tree, Tree]) -> None:
    (SweepFolder(home, "ab").version(two[1].version.id) / "toy.py").unlink()
    with pytest.raises(InputError, match=r"in HEAD \(.*no module or package 'toy'"):
        planned(home, *two)


def test_a_sweep_that_measures_nothing_of_the_repository_is_refused(home: Path, two: tuple[Tree, Tree]) -> None:
    with pytest.raises(InputError, match="no measured code is in the repository"):
        planned(home, *two, experiment=["accelerator=cpu"])


def test_a_config_difference_gets_a_note_and_another_axis_is_refused(home: Path, two: tuple[Tree, Tree]) -> None:
    experiment = FILES["conf/experiment/toy.yaml"]
    wider = tree(home, "wide", {"conf/experiment/toy.yaml": experiment.replace("toy.Toy}", "toy.Toy, width: 9}")})
    assert "conf/ differs: model.width is null in main and 9 in wide" in planned(home, two[0], wider).notes
    swept = tree(
        home, "swept", {"conf/experiment/toy.yaml": f"{experiment}hydra: {{sweeper: {{params: {{seed: '1,2'}}}}}}\n"}
    )
    with pytest.raises(InputError, match="sweep different axes"):
        planned(home, two[0], swept)


def test_a_user_key_named_version_is_refused(home: Path, two: tuple[Tree, Tree]) -> None:
    with pytest.raises(InputError, match="the config defines 'version'"):
        planned(home, *two, overrides=("+version=3",))


def test_a_source_layout_is_found_in_the_tree(home: Path) -> None:
    (home / "toy.py").unlink()
    write(home, {"src/toy.py": MODULE})
    trees = []
    for name in ("main", "HEAD"):
        one = tree(home, name, {"src/toy.py": MODULE + f"# {name}\n"})
        (SweepFolder(home, "ab").version(one.version.id) / "toy.py").unlink()
        trees.append(one)
    sources = planned(home, *trees).manifest.sources
    assert len(set(sources.values())) == 2
    assert set(sources) == {"toy of main", "toy of HEAD"}


def test_a_comparison_has_its_own_name(home: Path) -> None:
    assert comparison_name(home, TOY) == "ab-toy"
    assert comparison_name(home, [*TOY, "name=mine"]) == "ab-mine"

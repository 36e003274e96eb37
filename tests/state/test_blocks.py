"""A damaged block stops nobody whose setting stands in another one, and is named where it does not."""

from __future__ import annotations

import pytest

from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.attempt import standalone_spec
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_files import block_of, block_or_none, readable_blocks, readable_configs


@pytest.fixture
def blocks(example_sweep: SweepFolder) -> list[str]:
    """The names of the blocks: the first is truncated, the second is gone; the others hold every setting."""
    first, second, *others = (block.name for block in Manifest.read(example_sweep.manifest).blocks)
    example_sweep.block(first).write_bytes(example_sweep.block(first).read_bytes()[:-20])
    example_sweep.block(second).unlink()
    return [first, second, *others]


@pytest.fixture
def manifest(example_sweep: SweepFolder) -> Manifest:
    return Manifest.read(example_sweep.manifest)


def setting_in(folder: SweepFolder, block: str) -> str:
    return next(iter(Block.read(folder.block(block)).configs))


def test_a_setting_is_found_in_a_later_block_beside_a_damaged_one(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    """One damaged block stopped `debug` and `profile` for the settings of all blocks behind it."""
    setting = setting_in(example_sweep, blocks[2])
    assert block_of(example_sweep, manifest, setting).name == blocks[2]
    assert standalone_spec(example_sweep, setting, example_sweep.root, "debug").block == blocks[2]


def test_the_damaged_block_is_named_where_no_other_holds_the_setting(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    with pytest.raises(DamagedFile, match=f"{blocks[0]}.json: .* no other block holds setting 'nothing'"):
        block_of(example_sweep, manifest, "nothing")
    setting = setting_in(example_sweep, blocks[2])
    for name in blocks:
        example_sweep.block(name).unlink(missing_ok=True)
    with pytest.raises(DamagedFile, match=f"{blocks[0]}.json: it is missing; .* The same `accelsweep run`"):
        standalone_spec(example_sweep, setting, example_sweep.root, "debug")


def test_a_setting_of_no_block_is_wrong_input(example_sweep: SweepFolder, manifest: Manifest) -> None:
    with pytest.raises(InputError, match="holds setting 'nothing'"):
        block_of(example_sweep, manifest, "nothing")


def test_the_lenient_way_leaves_out_what_cannot_be_used(
    example_sweep: SweepFolder, manifest: Manifest, blocks: list[str]
) -> None:
    assert [block_or_none(example_sweep, name) is None for name in blocks] == [True, True] + [False] * len(blocks[2:])
    assert [block.name for block in readable_blocks(example_sweep, manifest)] == blocks[2:]
    runnable = {setting.name for setting in manifest.settings if setting.unsupported is None}
    assert readable_configs(example_sweep, manifest).keys() == runnable

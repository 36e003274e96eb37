"""A version whose tree was deleted: its runs use no other sources, and the reason reaches the user."""

from __future__ import annotations

from tiny_executor import TinyBlock

from accelsweep.config.versions import Tree, Version
from accelsweep.records.not_run_reasons import not_run_reason
from accelsweep.records.plan import Manifest


def test_runs_of_a_version_without_its_tree_are_not_measured_and_earlier_results_stay(tiny_block: TinyBlock) -> None:
    present, deleted = (
        Version(name=name, kind="commit", digest=digit * 40) for name, digit in (("main", "a"), ("HEAD", "b"))
    )
    tiny_block.plan_settings(*({"act": "measured", "version": version.identity} for version in (present, deleted)))
    folder = tiny_block.folder
    for version in (present, deleted):
        tree = Tree(version=version, checkout=str(tiny_block.home), place=".")
        tree.write(folder.version_file(version.id))
    folder.version(present.id).mkdir()
    code, output = tiny_block.run()
    assert code == 1, output
    remedy = f"{folder.version(deleted.id)} does not exist; running the same command recreates it"
    assert remedy in output
    (block,) = Manifest.read(folder.manifest).blocks
    assert remedy in not_run_reason(folder, block.name)
    measured = folder.latest_records()

    folder.version(deleted.id).mkdir()
    code, output = tiny_block.run()
    assert code == 0, output
    assert len(folder.latest_records()) == 2
    assert set(measured) < set(folder.latest_records())

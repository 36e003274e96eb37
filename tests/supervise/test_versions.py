"""A version's tree that is deleted between two runs: no run takes other sources, and the reason reaches the user."""

from __future__ import annotations

from tiny_supervisor import Supervised
from tiny_sweep import plan_sweep

from accelsweep.config.versions import Tree, Version
from accelsweep.records.plan import Manifest
from accelsweep.records.stop_reasons import why_not_run


def test_without_its_tree_no_run_of_a_version_is_measured_and_what_was_measured_stays(supervised: Supervised) -> None:
    there, lost = (
        Version(name=name, kind="commit", digest=digit * 40) for name, digit in (("main", "a"), ("HEAD", "b"))
    )
    cells = [{"act": "measured", "version": version.identity} for version in (there, lost)]
    supervised.folder, supervised.block = plan_sweep(supervised.home, cells)
    folder = supervised.folder
    for version in (there, lost):
        tree = Tree(version=version, checkout=str(supervised.home), place=".")
        tree.write(folder.version_file(version.id))
    folder.version(there.id).mkdir()
    code, output = supervised.run()
    assert code == 1, output
    remedy = f"{folder.version(lost.id)} is not there; the same `accelsweep ab` makes it again"
    assert remedy in output
    (block,) = Manifest.read(folder.manifest).blocks
    assert remedy in why_not_run(folder, block.name)
    measured = folder.records_on_top()

    folder.version(lost.id).mkdir()
    code, output = supervised.run()
    assert code == 0, output
    assert len(folder.records_on_top()) == 2
    assert set(measured) < set(folder.records_on_top())

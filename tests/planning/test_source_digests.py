"""The measured code is located and digested without importing any of it."""

import sys
from importlib.util import spec_from_file_location

import pytest
from tiny_sweep import config_with

from accelsweep.errors import InputError
from accelsweep.planning.source_digests import (
    WORKLOADS_PACKAGE,
    ImportPath,
    core_versions,
    measured_targets,
    source_digests,
)


def digest(home, target):
    return source_digests([("model._target_", target)], ImportPath.of_home(home))


def test_targets_are_found_at_any_depth():
    config = config_with(
        model={"_target_": "a.A", "inner": [{"_target_": "b.B"}]},
        data={"set": {"_target_": "c.C"}},
        optimizer=None,
        trainer={"callbacks": [{"_target_": "d.D"}]},
        mine={"_target_": "ignored.T"},
    )
    assert list(measured_targets(config)) == [
        ("model._target_", "a.A"),
        ("model.inner.0._target_", "b.B"),
        ("data.set._target_", "c.C"),
        ("trainer.callbacks.0._target_", "d.D"),
    ]


def test_a_module_in_the_working_directory_changes_its_digest_with_its_text(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported!')")
    before = digest(tmp_path, "mine.Net")
    (tmp_path / "mine.py").write_text("raise SystemExit('imported still!')")
    after = digest(tmp_path, "mine.Net")
    assert set(before) == set(after) == {"mine"}
    assert before != after


def test_a_package_counts_with_all_its_source_files_and_their_names(tmp_path):
    package = tmp_path / "pack" / "deep"
    package.mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit('imported!')")
    (package / "net.py").write_text("1")
    seen = [digest(tmp_path, "pack.deep.net.Net")["pack"]]
    (package / "notes.txt").write_text("no source")
    assert digest(tmp_path, "pack.Other")["pack"] == seen[0]
    (package / "kernel.cu").write_text("2")
    seen.append(digest(tmp_path, "pack.Net")["pack"])
    (package / "net.py").rename(package / "nett.py")
    seen.append(digest(tmp_path, "pack.Net")["pack"])
    assert len(set(seen)) == 3


def test_built_in_workloads_are_digested_and_versioned_packages_are_not(tmp_path):
    pairs = [("model._target_", "accelsweep.workloads.image_models.MLP"), ("optimizer._target_", "torch.optim.SGD")]
    assert set(source_digests(pairs, ImportPath.of_home(tmp_path))) == {WORKLOADS_PACKAGE}


def test_a_change_of_a_shipped_workload_changes_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr("accelsweep.planning.source_digests.WORKLOADS", tmp_path)
    (tmp_path / "image_models.py").write_text("WIDTH = 1")
    before = digest(tmp_path, "accelsweep.workloads.image_models.MLP")
    (tmp_path / "image_models.py").write_text("WIDTH = 2")
    assert digest(tmp_path, "accelsweep.workloads.image_models.MLP") != before


def test_an_installed_distribution_counts_with_its_list_of_files(tmp_path):
    (found,) = digest(tmp_path, "pytest.Thing").values()
    assert len(found) == 64


def test_a_module_of_the_standard_library_is_fine(tmp_path):
    assert set(digest(tmp_path, "builtins.dict")) == {"builtins"}
    assert set(digest(tmp_path, "collections.OrderedDict")) == {"collections"}


def test_a_missing_package_is_refused_with_the_nearest_name(tmp_path):
    (tmp_path / "mymodel.py").write_text("")
    with pytest.raises(InputError, match=r"model\._target_=mymodle\.Net.*'mymodle'.*'mymodel'"):
        digest(tmp_path, "mymodle.Net")


def test_core_versions_cover_the_packages_that_are_not_digested():
    assert set(core_versions()) == {"accelsweep", "torch", "lightning", "hydra-core", "snakemake"}
    assert all(core_versions().values())


def test_imported_modules_of_the_working_directory_have_their_own_digests(tmp_path):
    """Including indirect imports, but neither unused modules nor those installed elsewhere."""
    (tmp_path / "mine.py").write_text("import os, torch, layers.wide\nfrom .relative import x\n")
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "wide.py").write_text("def build():\n    from sizes import WIDTH\n")
    (tmp_path / "sizes.py").write_text("WIDTH = 1")
    (tmp_path / "notes.py").write_text("import mine")
    before = digest(tmp_path, "mine.Net")
    assert list(before) == ["layers", "mine", "sizes"]
    (tmp_path / "sizes.py").write_text("WIDTH = 2")
    after = digest(tmp_path, "mine.Net")
    assert {name for name in after if after[name] != before[name]} == {"sizes"}


def test_a_module_that_cannot_be_parsed_is_still_digested(tmp_path):
    (tmp_path / "mine.py").write_text("import sizes\nthis is no Python")
    assert set(digest(tmp_path, "mine.Net")) == {"mine"}


def test_an_editable_installation_is_located_by_its_own_finder(tmp_path, monkeypatch):
    """As setuptools installs a project in place: a finder for one package instead of a path entry."""
    source = tmp_path / "project" / "edipkg.py"
    source.parent.mkdir()
    source.write_text("raise SystemExit('imported!')")

    class Finder:
        @classmethod
        def find_spec(cls, name, path, target=None):
            return spec_from_file_location(name, source) if name == "edipkg" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    home = tmp_path / "home"
    home.mkdir()
    before = digest(home, "edipkg.Net")
    source.write_text("raise SystemExit('imported still!')")
    assert digest(home, "edipkg.Net") != before
    with pytest.raises(InputError, match="no module or package 'edipkgg'"):
        digest(home, "edipkgg.Net")

"""The versions of the user's code in a sweep: the tree of each version, and how a run imports from it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accelsweep.config.versions import Tree
from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.installation import python_path, worker_folder
from accelsweep.plain_json import canonical_json
from accelsweep.planning.source_digests import ImportPath, version_import_path
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest, MeasuredProject
from accelsweep.run_config import TREE_VARIABLE, SettingConfig
from accelsweep.worker.lightning_alias import PACKAGE_VARIABLE
from accelsweep.worker.tasks.whole_process import PYTHON_VARIABLE


@dataclass(frozen=True)
class CodeVersion:
    """A version that is ready to use. `folder` is its tree, or the working directory if the version has no tree."""

    tree: Tree
    folder: Path
    path: ImportPath

    @classmethod
    def of(cls, folder: SweepFolder, tree: Tree) -> CodeVersion:
        """Return the version of a sweep that has this tree."""
        home = folder.version(tree.version.id) if tree.checkout else folder.home
        return cls(tree, home, version_import_path(folder, tree))

    @property
    def home(self) -> Path:
        """The folder in the version's tree that corresponds to the working directory."""
        return self.folder / self.tree.place

    @property
    def python(self) -> str | None:
        """The version's own interpreter; None for this process's interpreter."""
        return self.tree.version.python

    @property
    def needs_spawn(self) -> bool:
        """Whether forking is ruled out: the version has its own interpreter, or one of its packages was imported."""
        return self.python is not None or any(package in sys.modules for package in self.tree.packages)

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables that make a forked or spawned run import from this tree (read by `worker.rank_setup`)."""
        if self.path.tree is None:
            return {}
        folders = [str(folder) for folder in self.path.folders]
        tree = {
            "name": self.tree.version.description,
            "tree": str(self.path.tree),
            "checkout": self.tree.checkout,
            "folders": folders,
            "packages": list(self.tree.packages),
        }
        return {TREE_VARIABLE: canonical_json(tree), "PYTHONPATH": python_path(*folders), "PYTHONSAFEPATH": "1"}


@dataclass(frozen=True)
class ProjectEnvironment:
    """The environment of the user's own training script.

    `python` is its interpreter, or None for accelsweep's own; `path` is where the interpreter finds accelsweep, and
    `package` is the Lightning package whose Trainer the script uses, if any. `version` is the script's version, if any.
    `script_python` is the interpreter of a script that runs in a process of its own (`measure.scope=process`).
    """

    python: str | None
    path: Path
    package: str | None
    version: CodeVersion | None = None
    script_python: str | None = None

    @classmethod
    def of(
        cls, project: MeasuredProject, config: SettingConfig, parent: Path, version: CodeVersion | None
    ) -> ProjectEnvironment:
        """Return the environment of a setting's runs; `parent` is where a folder for its import path may be created."""
        assert config.entry is not None, "the caller checks"
        python = (None if version is None else version.python) or project.python
        ours = None if config.whole_process else python
        return cls(ours, worker_folder(parent), config.entry.package, version, python)

    @property
    def needs_spawn(self) -> bool:
        """Whether forking this process is ruled out: the project has its own interpreter, or another Lightning."""
        return self.python is not None or self.package not in (None, "lightning")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make accelsweep importable for the project's interpreter and select its Lightning."""
        variables = dict(self.version.environment if self.version else {})
        if self.script_python is not None:
            variables[PYTHON_VARIABLE] = self.script_python
        if self.package is not None:
            variables[PACKAGE_VARIABLE] = self.package
        if self.python is not None:
            tree = variables.get("PYTHONPATH")  # with the inherited folders
            variables["PYTHONPATH"] = f"{self.path}{os.pathsep}{tree}" if tree else python_path(str(self.path))
        return variables


RunCode = CodeVersion | ProjectEnvironment
"""Where a run takes the user's code from."""


class CodeVersions:
    """The versions in a sweep's folder, each of which is read only once."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._cache: dict[str, CodeVersion] = {}

    def get(self, config: SettingConfig) -> CodeVersion | None:
        """Return the version that a config specifies; None if it specifies none, or if its version cannot be read."""
        name = config.version_id
        if name is None:
            return None
        if name not in self._cache and (version := self._read(name)) is not None:
            self._cache[name] = version
        return self._cache.get(name)

    def require(self, config: SettingConfig) -> CodeVersion | None:
        """Return the version that a config specifies, if any. Raises AccelsweepError if that version has no tree."""
        version, name = self.get(config), config.version_id
        if version is None and name is not None:
            raise AccelsweepError(
                f"the version's tree {self._folder.version(name)} does not exist; running the same command recreates it"
            )
        return version

    @cached_property
    def project(self) -> MeasuredProject | None:
        """The user's own training script, if the sweep measures one."""
        return Manifest.read(self._folder.manifest).entry

    def run_code(self, config: SettingConfig) -> RunCode | None:
        """Return where a run with this config takes the user's code from; None for the working directory.

        Raises AccelsweepError if the config specifies a version that has no tree.
        """
        version = self.require(config)
        if config.entry is None or self.project is None:
            return version
        return ProjectEnvironment.of(self.project, config, self._folder.root, version)

    def _read(self, name: str) -> CodeVersion | None:
        try:
            tree = Tree.read(self._folder.version_file(name))
        except (FileNotFoundError, DamagedFile):
            return None
        version = CodeVersion.of(self._folder, tree)
        return version if version.folder.is_dir() else None

"""The project's config is the same whether its process is forked from a server or starts as a fresh interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import copy_project
from shared_fork_server import plan_beside_the_server

from accelsweep.errors import InputError
from accelsweep.ipc import FORK_SERVER_VARIABLE
from accelsweep.planning.entry_point import project_in
from accelsweep.planning.project_config import Composed, ProjectConfigs

pytestmark = pytest.mark.heavy  # torch is imported in processes of their own

SHOWS_PROCESS = """
import os
from omegaconf import OmegaConf
OmegaConf.register_new_resolver("imports", lambda: os.pathsep.join(sys.path))
OmegaConf.register_new_resolver("forked", lambda: "accelsweep.executor.block" in sys.modules)
OmegaConf.register_new_resolver("says", lambda: os.environ["SAYS"])
OmegaConf.register_new_resolver("folder", os.getcwd)
"""


def insert(home: Path, code: str, *values: str) -> None:
    """Put code into the script, which no longer imports Lightning, and calls of resolvers into its config."""
    config, source = home / "configs" / "train.yaml", home / "src" / "train.py"
    config.write_text(config.read_text() + "".join(f"{name}: ${{{name}:}}\n" for name in values))
    source.write_text(
        source.read_text().replace("import lightning as L\n", "").replace("\nROOT =", f"\n{code}\nROOT =")
    )


def composed(home: Path, *arguments: str, entry: str | None = None) -> Composed:
    project = project_in(home, entry)
    assert project is not None
    with ProjectConfigs.of(project, {}) as configs:
        assert configs is not None
        configs.compose((), {})
        return configs.compose(arguments, {})


def test_a_fork_composes_what_a_fresh_interpreter_composes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = copy_project("hydra_template", tmp_path)
    insert(home, SHOWS_PROCESS, "imports", "forked", "says", "folder")
    plan_beside_the_server(monkeypatch, "SAYS")
    monkeypatch.setenv("SAYS", "hello")
    forked = composed(home, "model.hidden=8")
    monkeypatch.delenv(FORK_SERVER_VARIABLE)
    fresh = composed(home, "model.hidden=8")
    assert [each.config.pop("forked") for each in (fresh, forked)] == [False, True]
    assert [each.values.pop("forked:") for each in (fresh, forked)] == [False, True]
    assert forked == fresh
    assert forked.config["says"] == "hello"
    assert forked.config["model"]["hidden"] == 8


def test_a_fork_reads_a_lightning_cli_as_a_fresh_interpreter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copy_project("lightning_cli", tmp_path)
    entry = "python train.py fit --config config.yaml"
    fresh = composed(home, "--model.hidden=8", entry=entry)
    plan_beside_the_server(monkeypatch)
    assert composed(home, "--model.hidden=8", entry=entry) == fresh


def test_a_fresh_interpreter_composes_where_the_server_is_gone_or_has_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copy_project("hydra_template", tmp_path)
    insert(home, SHOWS_PROCESS, "forked")
    monkeypatch.setenv(FORK_SERVER_VARIABLE, "accelsweep-nobody")
    assert composed(home).config["forked"] is False
    plan_beside_the_server(monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert composed(home).config["forked"] is False


def test_a_fork_that_ends_says_why_like_a_fresh_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = copy_project("hydra_template", tmp_path)
    insert(home, 'print("no disk", file=sys.stderr, flush=True)\nos._exit(3)')
    message = r"^src/train.py exited while its config was being composed: no disk$"
    with pytest.raises(InputError, match=message):
        composed(home)
    plan_beside_the_server(monkeypatch)
    with pytest.raises(InputError, match=message):
        composed(home)

"""Fixtures shared between folders: builders from tests/fakes, what is made once, and which tests run beside which."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records.layout import SweepFolder

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.plugins.config_source import ConfigResult
    from hydra.types import RunMode
    from omegaconf import DictConfig
    from tiny_executor import TinyBlock

sys.path.insert(0, str(Path(__file__).parent / "fakes"))

hypothesis_settings.register_profile(
    "repeatable",  # a slow disk is no failure, and what fails here fails everywhere
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("repeatable")

SETTINGS = ("ACCELSWEEP_", "MLFLOW_")

# Tests start hundreds of processes: where nobody may keep what it compiled, each would compile our sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests disturb each other; those of waiting and repeating unset it.
os.environ["ACCELSWEEP_ASSUME_QUIET"] = "1"

LONGEST_FIRST = (
    "slurm", "end_to_end", "simulated", "faults", "storm", "browser", "tracking", "worker", "executor", "driver",
)  # fmt: skip
"""Folders that take minutes: parallel workers begin with them, and then with what starts real processes elsewhere, so
that none works on when the others are done."""

TOGETHER = (
    "cluster",
    "server",
    "storm_place",
    "published",
    "searched",
    "built_site",
    "prepared",
    "exported",
    "unusual",
    "two_commits",
    "generators",
)
"""Fixtures too expensive to be made by several workers: one worker runs all tests that want one of them."""

WARM = ("run_ranks", "measure_sweep")
"""Functions whose processes are forked from one with torch loaded (see fakes/warm.py): one worker has it."""

STORES = ("uri", "published", "searched")
"""Fixtures that want the server where they are given the parameter `http`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--last-lines`: print what users read last in each situation that tests provoke."""
    parser.addoption("--last-lines", action="store_true", help="print a table: situation, last line that the user sees")


@pytest.fixture
def last_line(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """A function that notes the last line which a user reads in a named situation, for `--last-lines`."""

    def note(situation: str, line: str) -> None:
        record_property("last line", f"{situation} | {' '.join(line.split())}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of last lines, where it was asked for."""
    if config.getoption("last_lines"):
        reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
        lines = {str(text) for report in reports for name, text in report.user_properties if name == "last line"}
        terminalreporter.section("last lines")
        for line in sorted(lines):
            terminalreporter.write_line(f"| {line} |")


def pytest_configure(config: pytest.Config) -> None:
    """Make one folder for what all workers share, and remove it at the end: the suite leaves nothing in TMPDIR.

    Each worker has locks of its own, as if on a machine of its own: with the same ones, timed runs take turns, and a
    worker waits for minutes.
    """
    from shared_fork_server import SHARED_VARIABLE, shared_folder

    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        stack = contextlib.ExitStack()
        stack.enter_context(shared_folder())
        config.add_cleanup(stack.close)
    os.environ[LEASE_FOLDER_VARIABLE] = str(Path(os.environ[SHARED_VARIABLE]) / f"leases-{worker or 'of-one'}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among modules: they stay, and each look at torch, Lightning and MLflow takes long.

    Composed configs leave garbage by the thousand. Collecting it less often saves a tenth of each test that plans.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Put the folders that take minutes first, and tests that share something expensive into one worker.

    Tests with an executor of their own start real processes and wait for them.
    """
    items.sort(key=_place)
    for item in items:
        if "tiny_block" in item.fixturenames:
            item.add_marker(pytest.mark.real)
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))


def _place(item: pytest.Function) -> int:
    folder = item.path.parent.name
    if folder in LONGEST_FIRST:
        return LONGEST_FIRST.index(folder)
    return len(LONGEST_FIRST) + (item.get_closest_marker("real") is None)


def _group(item: pytest.Function) -> str | None:
    stores = {item.callspec.params.get(name) for name in STORES} if hasattr(item, "callspec") else set()
    if "http" in stores:
        return "server"
    if not set(WARM).isdisjoint(item.function.__code__.co_names):
        return "warm"
    if "snakemake" in item.function.__code__.co_names:
        return "snakemake"
    browser = item.path.stem if item.path.parent.name == "browser" else None
    return next((name for name in TOGETHER if name in item.fixturenames), browser)


@pytest.fixture(autouse=True, scope="module")
def what_was_imported_is_no_garbage() -> None:
    """Have the collector look only at what a file's tests make: with MLflow or torch loaded it takes a tenth of all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def torch_computes_on_one_thread() -> None:
    """Let no thread of ours spin: on cores that other workers keep busy, two wait for each other in every operation."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def the_environment_is_left_as_it_was() -> Iterator[None]:
    """Fail a test that leaves a setting behind: a later test's child processes would read it."""
    before = settings()
    yield
    assert settings() == before


def settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}


@pytest.fixture(scope="session")
def generators() -> Iterator[None]:
    """The generators of the documentation on the path, as MkDocs puts them there; they parse all sources, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "docs" / "generate"))
        yield


@pytest.fixture
def example_sweep(tmp_path: Path) -> SweepFolder:
    """A finished sweep of ten settings in three blocks, every outcome among its runs (see fakes/example_sweep.py)."""
    from example_sweep import build_example_sweep

    return build_example_sweep(tmp_path)


@pytest.fixture
def tiny_block(tmp_path: Path) -> TinyBlock:
    """A sweep of its own, with locks of its own, waiting to be planned (see fakes/tiny_executor.py)."""
    from tiny_executor import TinyBlock

    return TinyBlock(tmp_path / "home", tmp_path / "leases")


@pytest.fixture(scope="session", autouse=True)
def shipped_compositions_are_kept() -> Iterator[None]:
    """Let Hydra compose the same lines of the shipped config once a worker: it takes a tenth of a second each time.

    Nothing changes that folder while tests run, and nobody can change what Hydra composed: it is read-only.
    """
    from accelsweep.config.hydra import Composer
    from accelsweep.installation import shipped_root

    composed: dict[tuple[object, ...], DictConfig] = {}
    compose = Composer._load

    def kept(composer: Composer, lines: Sequence[str], mode: RunMode) -> DictConfig:
        if composer.folders != (shipped_root() / "conf",):
            return compose(composer, lines, mode)
        asked = (composer._config_name, *lines, mode)
        if asked not in composed:
            composed[asked] = compose(composer, lines, mode)
        return composed[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Composer, "_load", kept)
        yield


@pytest.fixture(scope="session", autouse=True)
def unchanged_folders() -> Iterator[set[str]]:
    """The folders of configs that nothing changes while tests run: of these, each file is read once a worker.

    Our loader changes nothing that it keeps, so that is shared, too. Hydra's own loader gets a copy of what was read.
    """
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.object_type import ObjectType

    from accelsweep.config.hydra import CachedConfigs, CachingLoader
    from accelsweep.installation import shipped_root

    unchanged = {str(shipped_root() / "conf"), "hydra.conf", ""}
    read: dict[tuple[str, str], ConfigResult | None] = {}
    chosen: dict[tuple[str, ...], dict[tuple[str, ...], tuple[DictConfig, frozenset[str]]]] = {}
    load, made = ConfigRepository.load_config, CachingLoader.__init__

    def kept(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.path not in unchanged:
            return load(repository, config_path)
        asked = (f"{source.scheme()}://{source.path}", config_path)
        if asked not in read:
            read[asked] = load(repository, config_path)
        return read[asked] if isinstance(repository, CachedConfigs) else copy.deepcopy(read[asked])

    def sharing(loader: CachingLoader, config_search_path: ConfigSearchPath) -> None:
        made(loader, config_search_path)
        folders = tuple(source.path for source in loader.repository.get_sources())
        if unchanged.issuperset(folders):
            loader._composed = chosen.setdefault(folders, {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigRepository, "load_config", kept)
        patch.setattr(CachingLoader, "__init__", sharing)
        yield unchanged


@pytest.fixture(scope="session", autouse=True)
def pictures_are_kept(once: Callable[[str, Callable[[Path], None]], Path]) -> Iterator[None]:
    """Let no two tests draw the same picture (see fakes/chart_cache.py)."""
    from chart_cache import keep_pictures

    with pytest.MonkeyPatch.context() as patch:
        keep_pictures(patch, once("pictures", lambda _: None))
        yield


@pytest.fixture(scope="session")
def empty_database(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A SQLite store of MLflow's without an experiment of ours, to copy: making one takes MLflow a second."""

    def make(folder: Path) -> None:
        from accelsweep.tracking.store import create_database

        create_database(f"sqlite:///{folder}/mlflow.db", folder)

    return once("database", make) / "mlflow.db"


@pytest.fixture(scope="session")
def server_store(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> str:
    """The URI of the SQLite store behind the server."""
    home = tmp_path_factory.mktemp("server")
    shutil.copy(empty_database, home / "mlflow.db")
    return f"sqlite:///{home / 'mlflow.db'}"


@pytest.fixture(scope="session")
def server(server_store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real `mlflow server` on loopback, shared by all tests."""
    from guarded_server import free_port

    from accelsweep.tracking.ui import running_server

    with running_server(tmp_path_factory.mktemp("artifacts"), server_store, free_port()) as running:
        yield running.address


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function that returns a folder which the first of all parallel workers that asks for its name makes.

    Tests look at what it holds and must not change it.
    """
    ours = tmp_path_factory.getbasetemp()
    base = ours.parent if os.environ.get("PYTEST_XDIST_WORKER") else ours

    def shared(name: str, make: Callable[[Path], None]) -> Path:
        folder, made = base / f"once-{name}", base / f"once-{name}.made"
        with FileLock(base / f"once-{name}.lock"):
            if not made.exists():
                folder.mkdir()  # fails where an earlier attempt failed: once is enough
                make(folder)
                made.touch()
        return folder

    return shared


@pytest.fixture
def simulated() -> ModuleType:
    """The builders of simulated_sweep.py: make_manifest, make_run, name_of."""
    import simulated_sweep

    return simulated_sweep

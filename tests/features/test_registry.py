"""Features: found by scanning, loadable, independent of each other, and removable."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
import pytest
from home import REPOSITORY, TINY, Home

import accelsweep
from accelsweep import registry

SOURCE = Path(accelsweep.__file__).parent
FEATURES = {feature.name: feature for feature in registry.features() if feature.name != "testing"}
CORE = [
    path
    for path in sorted(SOURCE.rglob("*"))
    if path.suffix in {".py", ".j2", ".js", ".css", ".csv"}
    and path.relative_to(SOURCE).parts[0]
    not in {"features", "testing", "lightning.py", "pytorch_lightning.py", "transformers.py"}
]
"""These modules are where users import callbacks of features from."""

OWN_WORDS = {
    "ab": r"accelsweep ab\b|`ab`|\bworktrees?\b",
    "accounting": r"\bsacct\b(?!\|)|\baccounting\b(?!/QOS)|\bjob_queue_seconds",
    "advise": r"accelsweep advise|`advise`",
    "archives": r"\barchives?\b",
    "boosting": r"\bboost(ing|ed|ers?)\b|row.rounds",
    "claims": r"\bclaims\b|\ba claim\b",
    "debug": r"accelsweep debug",
    "detach": r"--detach|\bdetached driver",
    "distillation": r"\bdistill|\bteacher",
    "fleet": r"\bfleets?\b",
    "grid_engine": r"grid.engine|\bqsub\b|\bqstat\b",
    "history": r"accelsweep history",
    "imports": r"(?<!from )accelsweep import\b",
    "kernels": r"task=kernel|\"kernels\"|\"flops_per_second\": Meaning",
    "ladder": r"\bladders?\b|\brungs?\b",
    "notifications": r"--notify|\bapprise\b",
    "profile": r"accelsweep profile",
    "projection": r"\bprojected\b|`projection",
    "watch": r"accelsweep watch|LiveRate",
    "why_not_faster": r"why.not.faster",
    "serving": r"\bserving\.|loadgen|queries_per_second|half_load",
}
"""Feature -> words that only it uses; a common word, such as `profile`, has none of its own but its command."""


def targets(value: Any) -> Iterator[str]:
    """Yield every dotted target in a feature's description."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from targets(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from targets(part)
    elif isinstance(value, str) and re.fullmatch(r"accelsweep[.\w]*:\w+", value):
        yield value


@pytest.mark.parametrize("name", FEATURES)
def test_each_target_of_a_feature_can_be_loaded(name: str) -> None:
    for target in targets(FEATURES[name]):
        assert registry.load(target) is not None


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_imports_the_features_that_it_requires_and_no_others(name: str, imports: grimp.ImportGraph) -> None:
    package = f"accelsweep.features.{name}"
    inside = {package, *imports.find_descendants(package)}
    used = {target for module in inside for target in imports.find_modules_directly_imported_by(module)}
    others = {target.split(".")[2] for target in used if target.startswith("accelsweep.features.")} - {name}
    assert others == set(FEATURES[name].requires)


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Return all imports of the package."""
    return grimp.build_graph("accelsweep")


def test_each_feature_has_words_of_its_own_to_look_for() -> None:
    assert OWN_WORDS.keys() == FEATURES.keys()


@pytest.mark.parametrize("name", OWN_WORDS)
def test_the_core_has_no_word_of_a_feature(name: str) -> None:
    pattern = re.compile(rf"{OWN_WORDS[name]}|features\.{name}\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in CORE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def without(names: set[str], folder: Path) -> Home:
    """Return a home whose accelsweep lacks these features and those that require them."""
    while more := {name for name, feature in FEATURES.items() if names & set(feature.requires)} - names:
        names |= more
    for part in ("conf", "workflows", "src"):
        shutil.copytree(REPOSITORY / part, folder / part)  # what is compiled, too
    for part in ("Snakefile", "constraints.txt"):
        shutil.copy(REPOSITORY / part, folder / part)
    for name in names:
        shutil.rmtree(folder / "src" / "accelsweep" / "features" / name)
    (folder / "home").mkdir()
    home = Home(folder / "home", PYTHONPATH=str(folder / "src"))
    home.experiment("tiny", TINY)
    return home


def test_the_last_lines_of_a_command_import_no_charts() -> None:
    """They are printed by every `run`, also if nothing is left to do."""
    code = "import sys; from accelsweep import registry; print(len(list(registry.loaded('last_lines'))), *sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(loaded[0]) > 0
    assert "altair" not in loaded


@pytest.mark.real
def test_a_sweep_runs_to_its_report_without_any_feature(tmp_path: Path, empty_database: Path) -> None:
    home = without(set(FEATURES), tmp_path)
    shutil.copy(empty_database, home.path)
    result = home.accelsweep("run", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    assert (home.path / "reports" / "tiny" / "index.html").is_file()


@pytest.mark.long  # half a minute for each feature; the test above removes all of them at once
@pytest.mark.parametrize("name", FEATURES)
def test_the_quickstart_runs_to_its_report_without_a_feature(name: str, tmp_path: Path) -> None:
    home = without({name}, tmp_path)
    result = home.accelsweep("run", "experiment=quickstart", "measure=quick", "repeats=1")
    assert result.returncode == 0, result.stdout
    assert (home.path / "reports" / "quickstart" / "index.html").is_file()

"""No module unpickles, so that reading an untrusted file never executes it."""

import ast
from pathlib import Path

import pytest

import accelsweep

ROOT = Path(accelsweep.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"load", "read_pickle", "load_from_checkpoint"}
HOLDERS = {"torch", "numpy", "np", "pd", "pandas", "joblib", "pickle", "jit"}


def unpickling(source: str) -> list[str]:
    """What in a module's source could unpickle a file: imports of picklers, and loaders of torch, numpy, pandas."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Attribute) and node.attr in CALLS:
            holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if node.attr != "load" or holder in HOLDERS:
                found.append(f"{holder}.{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.append("allow_pickle")
    return found


def test_no_module_unpickles_a_file():
    found = {str(path.relative_to(ROOT)): unpickling(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
    assert found.keys() >= {"__main__.py", "records/run_record.py"}
    assert {name: calls for name, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "torch.load(x)", "np.load(x, allow_pickle=True)", "pd.read_pickle(x)"],
)
def test_the_search_finds_unpickling(source):
    assert unpickling(source) != []

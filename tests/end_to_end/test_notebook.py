"""A sweep is planned, measured and shown in a real Jupyter kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook, writes

from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_kernel(home, monkeypatch):
    """A function that runs lines of code as cells in a kernel in the home, and returns their outputs."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    import notebook

    def run(*cells):
        source = home.path / "source.ipynb"
        source.write_text(writes(new_notebook(cells=[new_code_cell(cell) for cell in cells])))
        made = notebook.executed(source, home.path, home.environment)
        source.unlink()
        return [cell.outputs for cell in made.cells]

    yield run
    for name in ("notebook", "sources"):
        sys.modules.pop(name, None)


def printed(outputs):
    shown = [output.text if output.output_type == "stream" else output.data["text/plain"] for output in outputs]
    return "".join(shown)


def html(outputs):
    return next(output.data["text/html"] for output in outputs if output.output_type == "execute_result")


@pytest.mark.long  # the next test starts a kernel, notebook/ shows and plans, end_to_end/ measures
def test_a_sweep_is_planned_measured_shown_and_resumed_in_a_kernel(home, in_kernel):
    before = set(home.files())
    planned, left, measured, runs, again, exported, opened, heavy = in_kernel(
        "import accelsweep\naccelsweep.plan(['experiment=tiny'])",
        "import pathlib\nprint(sorted(map(str, pathlib.Path().glob('*'))))",
        "sweep = accelsweep.run(['experiment=tiny'])\nsweep",
        "print(list(sweep.runs['outcome']), sweep.runs['samples_per_second'].min() > 0)",
        "again = accelsweep.run(['experiment=tiny'])\nprint(again.runs.equals(sweep.runs))",
        "!{__import__('sys').executable} -m accelsweep export tiny --to kept.zip",
        "print(accelsweep.open('kept.zip').findings == accelsweep.open('tiny').findings == sweep.findings)",
        "import sys\nprint([name for name in ('torch', 'lightning', 'mlflow') if name in sys.modules])",
    )
    assert "4 runs" in html(planned)
    assert "sweeps" not in printed(left), "a preview writes nothing"
    assert "[4/4]" in printed(measured), "progress is printed"
    assert "accelsweep-first-screen" in html(measured)
    assert printed(runs) == "['measured', 'measured', 'measured', 'measured'] True\n"
    assert printed(again).endswith("True\n"), "the same call again measures nothing"
    assert "kept.zip" in printed(exported)
    assert printed(opened) == "True\n"
    assert printed(heavy) == "[]\n"
    assert SweepFolder(home.path, "tiny").findings.exists()
    assert before < set(home.files())


def test_wrong_input_stops_a_cell_with_the_message_of_the_command(in_kernel):
    with pytest.raises(CellExecutionError, match=r"InputError.*did you mean 'tiny'"):
        in_kernel("import accelsweep\naccelsweep.run(['experiment=tny'])")

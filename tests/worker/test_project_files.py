"""Which files a process is seen to read: imported, opened or executed, and below the folder only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from accelsweep.worker.project_files import ProjectFiles

files = ProjectFiles(Path.cwd())
sys.path.insert(0, "")
import package.module
exec(open("part.txt").read())
Path("data/table.json").read_bytes()
Path("written.txt").write_text("x")
open("/etc/hostname").close()
Path(".hidden/secret").read_text()
Path("sweeps/old.json").read_text()
files.stop()
open("late.yaml").close()
print(*files.paths())
"""


def test_imports_and_files_that_are_read_count_and_nothing_else(tmp_path: Path) -> None:
    for name in ("package/__init__.py", "package/module.py", "part.txt", "data/table.json", "late.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for name in (".hidden/secret", "sweeps/old.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    for _ in range(2):  # the second time, modules come from their compiled files
        done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["data/table.json", "package/__init__.py", "package/module.py", "part.txt"]

"""Ctrl-C while the command line is still being imported."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from accelsweep.__main__ import main
main()
"""


def test_it_ends_with_one_line_and_the_exit_code_of_an_interruption() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "accelsweep: interrupted\n")

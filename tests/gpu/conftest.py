"""The acceptance of benchmarks/gpu is a folder of scripts that import one another; tests import them the same way."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))

"""The storm's seeds, its place to happen in, and the sweep that it begins with."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The JSON that commands print with `--json`: one object that starts with its kind and format version.

Keys may be added to a format; changing or removing a key requires a new format version. Keys have the same names as in
records, findings and plans; times are UTC in ISO 8601, and `None` becomes null.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from accelsweep import registry
from accelsweep.installation import __version__
from accelsweep.json_documents import Frozen


class Answer(Frozen):
    """The JSON output of the command `kind`, starting with `accelsweep` (the kind), `format` and `version`."""

    kind: ClassVar[str]
    format: ClassVar[int] = 1

    def text(self) -> str:
        """Return the output as ASCII-only JSON, so that labels cannot contain terminal control characters.

        Raises ValueError for NaN and infinities.
        """
        head: dict[str, Any] = {"accelsweep": self.kind, "format": self.format, "version": __version__}
        return json.dumps(head | self.model_dump(mode="json"), indent=2, ensure_ascii=True, allow_nan=False)


_CORE_ANSWERS = (
    "accelsweep.driver.plan_preview:PlanAnswer",
    "accelsweep.cli.status:StatusAnswer",
    "accelsweep.cli.runs:RunsAnswer",
    "accelsweep.cli.sweeps:CompareAnswer",
    "accelsweep.cli.doctor:DoctorAnswer",
)


def all_answers() -> tuple[type[Answer], ...]:
    """Return the models of all commands' JSON output, for the reference documentation; features' models come last."""
    targets = [*_CORE_ANSWERS, *(target for feature in registry.features() for target in feature.answers)]
    return tuple(registry.load(target) for target in targets)

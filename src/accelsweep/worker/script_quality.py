"""The quality metric of a script without a Lightning Trainer, from what it prints, reports or evaluates."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TextIO

from accelsweep.metrics import Metric


class ScriptQuality:
    """Collects the values of a metric; the last one counts."""

    def __init__(self, metric: str, pattern: str | None) -> None:
        """`pattern` is a regular expression for a printed line, whose group is the value; None reads no output."""
        self._metric, self._pattern = metric, None if pattern is None else re.compile(pattern)
        self._value: float | None = None
        self._no_number: str | None = None
        self._evaluated: set[str] = set()

    def printed(self, line: str) -> None:
        """Search a line that the script has printed."""
        found = self._pattern and self._pattern.search(line)
        if found and found[1] is not None:
            try:
                self.reported(float(found[1].strip(" .,;%")))
            except ValueError:
                self._no_number = found[1]

    def reported(self, value: float) -> None:
        """Take a value."""
        self._value = value

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """Take the value from the results of an evaluation, if they contain the metric."""
        self._evaluated |= metrics.keys()
        value = metrics.get(self._metric, metrics.get(f"eval_{self._metric}"))
        if value is not None and self._pattern is None:
            self.reported(float(value))

    def metric(self) -> Metric:
        """Return the last value, or the reason why there is none."""
        scope = "at the script's own end"
        if self._value is not None and math.isfinite(self._value):
            return Metric(value=self._value, unit=self._metric, scope=scope)
        if self._value is not None:
            reason = f"{self._metric} is {self._value}"
        elif self._no_number is not None:
            reason = f"{self._no_number!r}, which the script printed, is not a number"
        elif self._pattern is not None:
            reason = f"the script printed no line that matches {self._pattern.pattern!r}"
        else:
            others = f"; its evaluation returned {', '.join(sorted(self._evaluated))}" if self._evaluated else ""
            reason = f"the script did not call accelsweep.quality, and no evaluation returned {self._metric}{others}"
        return Metric(value=None, unit=self._metric, reason=reason, scope=scope)


class SearchedOutput:
    """Passes on what a script writes to a stream, and shows each line to a `ScriptQuality`, also before it ends."""

    def __init__(self, stream: TextIO, quality: ScriptQuality) -> None:
        """`stream` is stdout or stderr."""
        self._stream, self._quality, self._line = stream, quality, ""

    def write(self, text: str) -> int:
        """Pass on `text`."""
        *lines, self._line = re.split(r"[\r\n]", self._line + text)
        for line in (*lines, self._line):
            self._quality.printed(line)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream, such as `flush` or `buffer`."""
        return getattr(self._stream, name)

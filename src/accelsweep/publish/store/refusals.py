"""The reason why a store refused somebody or gave no answer, in one sentence: who, what, where, and what mends it."""

from __future__ import annotations

import re

from accelsweep.base.secrets import masked
from accelsweep.publish.store.experiment import user_at

_UNKNOWN, _FORBIDDEN = 401, 403
_CODES = {"UNAUTHENTICATED": _UNKNOWN, "CUSTOMER_UNAUTHORIZED": _UNKNOWN, "PERMISSION_DENIED": _FORBIDDEN}
"""MLflow's names of the statuses of HTTP."""

_WORDS = re.compile(r"\[Errno -?\d+\] ([^'\")\]>]+)")
_LOGIN = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
_SAFE = "All records are safe"


def refusal(uri: str, error: Exception, experiment: str | None) -> str | None:
    """Return the sentence where a server refused us: asking again would not help. None for any other `error`.

    `experiment` is the name of the one that was written to, where it is known.
    """
    status = _status(error)
    if status not in (_UNKNOWN, _FORBIDDEN):
        return None
    user = user_at(uri)
    if status == _UNKNOWN:
        return (
            f"MLflow at {masked(uri)} refused us: no user {user!r} with this password, or none was given. "
            f"Set {_LOGIN} of somebody who may write there. {_SAFE}"
        )
    what = f"write to the experiment {experiment!r}" if experiment else "make an experiment"
    return (
        f"MLflow at {masked(uri)} refused us: {user!r} may not {what}. "
        f"Let its owner or an admin grant EDIT to {user!r}, or set {_LOGIN} of somebody who may. {_SAFE}"
    )


def why(error: Exception) -> str:
    """Return in short what went wrong: the system's words where a connection failed, else the first line."""
    text = str(error) or type(error).__name__
    found = [] if getattr(error, "filename", None) else _WORDS.findall(text)
    return masked((found[-1] if found else text).splitlines()[0].strip())


def _status(error: Exception) -> int | None:
    """Return the status of HTTP that a refusal had; artifacts are sent past MLflow's own errors."""
    code = _CODES.get(str(getattr(error, "error_code", None)))
    return code or getattr(getattr(error, "response", None), "status_code", None)

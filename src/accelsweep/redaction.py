"""Masks secrets in text and configs, using the same rules for logs, records, MLflow and reports.

Most secrets are in URLs: `postgresql://me:secret@host/db`, `https://host/data?token=secret`. Ambiguous URLs are
over-masked rather than under-masked, because a password may contain any character except white space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

_SECRET_WORDS = frozenset(("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "PASSWD", "PASSPHRASE", "APIKEY"))

_SECRET_SUFFIXES = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "ACCESSKEY", "PRIVATEKEY")
"""Suffixes of secret names that contain no underscore, such as PGPASSWORD."""

_SECRET_PARAMETERS = (
    "token", "passw", "pwd", "passphrase", "secret", "key", "sig", "credential", "auth", "odbc_connect",
)  # fmt: skip
"""Substrings in the names of secret URL parameters."""

_ENVIRONMENT_KEY = "env"
"""The config key that contains a run's environment variables."""

_CLOSING = "\"'`)]}>,.;"
"""Trailing characters that belong to the sentence or quotation surrounding a URL."""


def masked(text: str) -> str:
    """Return `text` with user names, passwords and tokens in its URLs replaced by `***`.

    A URL ends at white space. If it begins with credentials, everything before its last `@` is masked, because an
    unquoted password may contain slashes, quotes and further `@` signs.
    """
    if "://" not in text and "=" not in text:  # fast path for nearly all strings in a plan
        return text
    return "".join(_mask_word(word) if "://" in word or "=" in word else word for word in re.split(r"(\s+)", text))


def without_secrets(value: Any) -> Any:
    """Return a config, or part of a config, with every string masked; numbers and structure are unchanged.

    A string that starts like a URL is treated as one URL, even if it contains white space. Variables in `env` with a
    secret name are masked entirely.
    """
    if isinstance(value, str):
        if "://" not in value and "=" not in value:  # as in `masked`
            return value
        scheme, separator, _ = value.partition("://")
        is_url = bool(separator) and not any(map(str.isspace, scheme))
        return _mask_word(value) if is_url or _sets_secret_variable(value) else masked(value)
    if isinstance(value, Mapping):
        return {masked(key) if isinstance(key, str) else key: _mask_item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value


def is_secret_name(variable: str) -> bool:
    """Return whether an environment variable's name marks it as secret, by one of its words or by its suffix."""
    name = variable.upper()
    words = {word.removesuffix("S") for word in name.split("_")}
    return not _SECRET_WORDS.isdisjoint(words) or name.endswith(_SECRET_SUFFIXES)


def credentials_of(url: str) -> str | None:
    """Return a URL's user and password as written, or None if the URL has none."""
    _, separator, rest = url.partition("://")
    login, at, _ = rest.rpartition("@")
    if not separator or not at or (rest.startswith("[") and "]" in login):  # an IPv6 host
        return None
    first = min((rest.find(sign), sign) for sign in ":@/?#" if sign in rest)[1]
    return login if first in ":@" else None


def _mask_item(key: Any, value: Any) -> Any:
    if key == _ENVIRONMENT_KEY and isinstance(value, Mapping):
        return {name: MASK if is_secret_name(str(name)) else without_secrets(item) for name, item in value.items()}
    is_dotted = isinstance(key, str) and "." in key  # others set no variable
    return MASK if is_dotted and _sets_secret_variable(f"{key}=") else without_secrets(value)


def _sets_secret_variable(text: str) -> bool:
    """Return whether text starts like an override of a secret variable: `+env.HF_TOKEN=...`."""
    key, equals, _ = text.lstrip("+'\"").partition("=")
    group, dot, variable = key.partition(".")
    return bool(equals and dot) and group == _ENVIRONMENT_KEY and is_secret_name(variable)


def _mask_word(text: str) -> str:
    """Mask an override of a secret variable, or all URLs in text in which white space does not end a URL."""
    if _sets_secret_variable(text):
        return f"{text.partition('=')[0]}={MASK}"
    first, *urls = text.split("://")
    return "://".join([_mask_parameters(first), *(_mask_parameters(_mask_credentials(rest)) for rest in urls)])


def _mask_credentials(rest: str) -> str:
    credentials = credentials_of(f"://{rest}")
    return rest if credentials is None else MASK + rest[len(credentials) :]


def _mask_parameters(text: str) -> str:
    """Mask the values of secret parameters after a question mark or in a fragment."""
    start = min((text.index(sign) for sign in "?#&" if sign in text), default=None)
    if start is None or "=" not in text:
        return text
    return text[: start + 1] + "&".join(map(_mask_parameter, text[start + 1 :].split("&")))


def _mask_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return _mask_parameters(text)
    if any(word in unquote(name).lower() for word in _SECRET_PARAMETERS):
        return f"{name}={MASK}{value[len(value.rstrip(_CLOSING)) :]}"
    plain = unquote(value)
    if plain != value and "://" in plain and masked(plain) != plain:  # a percent-encoded URL
        return f"{name}={masked(plain)}"
    return f"{name}={_mask_parameters(value)}"

"""Text without the secrets in its addresses: one rule for logs, records, MLflow and reports.

Most secrets stand in addresses: `postgresql://me:secret@host/db`, `https://host/data?token=secret`. Addresses are taken
apart by their grammar, and in doubt too much is masked: a password may hold any character but white space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"

_WORDS = frozenset(("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL", "PASSWD", "PASSPHRASE", "APIKEY"))

_RUN_TOGETHER = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "ACCESSKEY", "PRIVATEKEY")
"""Words that also end names without an underscore, such as PGPASSWORD."""

_ENVIRONMENT = "env"
"""The key of a config that holds a run's own environment variables."""

_IN_PARAMETERS = ("token", "passw", "pwd", "passphrase", "secret", "key", "sig", "credential", "auth", "odbc_connect")

_CLOSING = "\"'`)]}>,.;"
"""Characters that end a sentence or a quotation and not the address in it."""


def masked(text: str) -> str:
    """Return `text` with user names, passwords and tokens in its addresses replaced by `***`.

    An address ends at white space. What stands before the last `@` of one that begins with a login is hidden whole,
    because a password that is not quoted may hold slashes, quotes and more of that sign.
    """
    if "://" not in text and "=" not in text:  # nearly all texts of a plan, of which there are many
        return text
    words = re.split(r"(\s+)", text)
    return "".join(_word(word) if "://" in word or "=" in word else word for word in words)


def without_secrets(value: Any) -> Any:
    """Return a config (or a part of one) with every text in it `masked`; its numbers and its shape stay.

    A text that begins as an address is one address, whatever white space it holds. Of the variables in `env`, those are
    hidden whose name tells of a secret.
    """
    if isinstance(value, str):
        if _sets_a_secret(value):
            return f"{value.partition('=')[0]}={HIDDEN}"
        return _word(value) if _begins_as_address(value) else masked(value)
    if isinstance(value, Mapping):
        return {masked(key) if isinstance(key, str) else key: _item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return value


def names_a_secret(variable: str) -> bool:
    """Return whether the name of an environment variable tells of a secret: by a whole word between underscores."""
    name = variable.upper()
    return not _WORDS.isdisjoint(word.removesuffix("S") for word in name.split("_")) or name.endswith(_RUN_TOGETHER)


def login_of(address: str) -> str | None:
    """Return what stands as user and password in an address, as it is written; None where there is neither."""
    _, mark, rest = address.partition("://")
    login, at, _ = rest.rpartition("@")
    if not mark or not at or (rest.startswith("[") and "]" in login):  # an IPv6 host
        return None
    first = min((rest.find(sign), sign) for sign in ":@/?#" if sign in rest)[1]
    return login if first in ":@" else None


def _item(key: Any, value: Any) -> Any:
    if key == _ENVIRONMENT and isinstance(value, Mapping):
        return {name: HIDDEN if names_a_secret(str(name)) else without_secrets(item) for name, item in value.items()}
    return HIDDEN if _sets_a_secret(f"{key}=") else without_secrets(value)


def _sets_a_secret(text: str) -> bool:
    """Return whether a text begins as an override of a secret variable: `+env.HF_TOKEN=...`."""
    key, is_there, _ = text.lstrip("+'\"").partition("=")
    group, dot, variable = key.partition(".")
    return bool(is_there and dot) and group == _ENVIRONMENT and names_a_secret(variable)


def _begins_as_address(text: str) -> bool:
    scheme, mark, _ = text.partition("://")
    return bool(mark) and not any(map(str.isspace, scheme))


def _word(text: str) -> str:
    """Mask the addresses in a text in which white space ends none."""
    if _sets_a_secret(text):
        return f"{text.partition('=')[0]}={HIDDEN}"
    first, *addresses = text.split("://")
    return "://".join([_parameters(first), *(_parameters(_without_login(rest)) for rest in addresses)])


def _without_login(rest: str) -> str:
    login = login_of(f"://{rest}")
    return rest if login is None else HIDDEN + rest[len(login) :]


def _parameters(text: str) -> str:
    """Mask the values of telling parameters, behind a question mark or in a fragment."""
    start = min((text.index(sign) for sign in "?#&" if sign in text), default=None)
    if start is None or "=" not in text:
        return text
    return text[: start + 1] + "&".join(map(_parameter, text[start + 1 :].split("&")))


def _parameter(text: str) -> str:
    name, is_there, value = text.partition("=")
    if not is_there:
        return _parameters(text)
    if any(word in unquote(name).lower() for word in _IN_PARAMETERS):
        return f"{name}={HIDDEN}{value[len(value.rstrip(_CLOSING)) :]}"
    plain = unquote(value)
    if plain != value and "://" in plain and masked(plain) != plain:  # an address that was quoted whole
        return f"{name}={masked(plain)}"
    return f"{name}={_parameters(value)}"

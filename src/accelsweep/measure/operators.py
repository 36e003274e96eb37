"""Kinds of torch's operators, by their names in a profile."""

from __future__ import annotations

import re

_MATMUL = re.compile(
    r"\w+::_*(\w*_)?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|addr|dot|matmul|linear(_pointwise|_backward)?)"
    r"|\w+::\w*(convolution|conv[123]d|rnn|attention)\w*"
)

_CAST = re.compile(r"aten::(_to_copy|to|copy_|type_as)")


def is_matmul(name: str) -> bool:
    """Return whether an operator multiplies matrices, in torch's namespaces or those of its libraries."""
    return _MATMUL.fullmatch(name) is not None


def is_cast(name: str) -> bool:
    """Return whether an operator converts or copies tensors."""
    return _CAST.fullmatch(name) is not None

"""Text from names and files inside Markdown, where it must stay the text that it is."""

import re
from typing import Any

#: Characters that start a column, code, emphasis, a tag or a link. An underscore inside a word starts nothing.
_SPECIAL = re.compile(r"[\\|`*<]|(?<=\])\(")


def escaped(value: Any) -> str:
    r"""A value as Markdown shows it: one line, every special character behind a backslash.

    >>> escaped("SAC+permuted[blocks=40](aes_r|x)")
    'SAC+permuted[blocks=40]\\(aes_r\\|x)'
    """
    return _SPECIAL.sub(r"\\\g<0>", " ".join(str(value).split()))

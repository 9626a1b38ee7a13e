"""Texts as they may be shown and kept: without the passwords of URLs."""

from __future__ import annotations

import re

# Up to the last @ before the path: a password in which ? or # are not escaped is one, too.
_USER = re.compile(r"(?<=://)[^\s/]*@")
_PARAMETER = re.compile(r"(?<=[?&])((?:username|password)=)[^\s&#]*")


def redacted(text: str) -> str:
    """`text` with its URLs lacking user and password.

    `--registry=redis://:secret@host:6379/0` becomes `--registry=redis://host:6379/0`; a password
    among the URL's parameters becomes `***`.
    """
    return _PARAMETER.sub(r"\1***", _USER.sub("", text))

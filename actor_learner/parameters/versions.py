"""What a parameter store says of its versions, and what it hands out."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """A version that was read; the arrays are the reader's own.

    Attributes:
      version: The version.
      values: Arrays by name.
      tags: The tags that pointed to it.
      metadata: What was pushed with it.
      created: When it was pushed, in seconds since 1970.
    """

    version: int
    values: dict[str, np.ndarray]
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created: float


@dataclasses.dataclass(frozen=True)
class StoredVersion:
    """A version that is there.

    Attributes:
      version: The version.
      tags: The tags that point to it.
      metadata: What was pushed with it.
      created: When it was pushed, in seconds since 1970; None if it is damaged.
      size: Bytes of its file.
      path: The file.
      damage: What is wrong with it, as far as one sees without reading all of it; else None.
    """

    version: int
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created: float | None
    size: int
    path: pathlib.Path
    damage: str | None

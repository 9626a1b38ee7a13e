"""Where gin files are found: as given, next to the file that includes them, or shipped with us."""

from __future__ import annotations

import os
from collections.abc import Sequence

from actor_learner.configuring import suggestions
from actor_learner.support import errors

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SUFFIX = ".gin"


def packaged_directory() -> str | None:
    """The directory of the gin files that come with this package, or None if they are missing.

    An installed package carries them in `actor_learner/gin_files`; a source checkout has them in
    `gin` beside the package.
    """
    installed = os.path.join(_PACKAGE, "gin_files")
    if os.path.isdir(installed):
        return installed
    checkout = os.path.join(os.path.dirname(_PACKAGE), "gin")
    # Beside an installed package, `gin` is the gin library itself.
    if os.path.isdir(checkout) and not os.path.exists(os.path.join(checkout, "__init__.py")):
        return checkout
    return None


def find(gin_file: str, including: str | None = None) -> str:
    """The absolute path of `gin_file`.

    Looks, in this order: next to `including` (the path of the file whose `include` this is), at
    the path as given (relative to the working directory), and among the packaged files, where a
    leading `gin/` may be left out. The suffix `.gin` may always be left out.

    Raises:
      errors.ConfigError: If there is no such file; names the places and the nearest names.
    """
    places = _places(gin_file, including)
    for place in places:
        for path in _spellings(place, gin_file):
            if os.path.isfile(path):
                return os.path.abspath(path)
    raise errors.ConfigError(
        f"no gin file '{gin_file}' in {' or '.join(places)}" + _suggestion(gin_file, places)
    )


def leaves() -> list[str]:
    """The names of the packaged files that are complete experiments, without `.gin`."""
    packaged = packaged_directory()
    names = _gin_files_in(packaged) if packaged else []
    # Its neighbours include base.gin; alone it builds nothing.
    return [name[: -len(_SUFFIX)] for name in names if name != "base.gin"]


def shown(path: str) -> str:
    """`path` as a user would type it: relative inside the working directory, else absolute."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _places(gin_file: str, including: str | None) -> list[str]:
    if os.path.isabs(gin_file):
        return [os.path.dirname(gin_file)]
    places = [os.path.dirname(including)] if including else []
    places.append(os.getcwd())
    packaged = packaged_directory()
    if packaged:
        places.append(packaged)
    return list(dict.fromkeys(places))


def _spellings(place: str, gin_file: str) -> list[str]:
    names = [gin_file]
    head, _, rest = gin_file.replace(os.sep, "/").partition("/")
    if head == "gin" and rest and place == packaged_directory():
        names.append(rest)
    paths = [os.path.join(place, name) for name in names]
    return paths + [path + _SUFFIX for path in paths if not path.endswith(_SUFFIX)]


def _suggestion(gin_file: str, places: Sequence[str]) -> str:
    packaged = packaged_directory()
    names = []
    for place in places:
        # Only the packaged tree is searched in depth: a working directory may be anything.
        if place == packaged:
            names += _gin_files_below(place)
        else:
            near = os.path.join(place, os.path.dirname(gin_file))
            names += [os.path.join(os.path.dirname(gin_file), name) for name in _gin_files_in(near)]
    wanted = gin_file if gin_file.endswith(_SUFFIX) else gin_file + _SUFFIX
    found = suggestions.nearest(wanted, names, limit=3)
    if not found:
        # The user may have the right file name in the wrong folder.
        by_base = {os.path.basename(name): name for name in reversed(names)}
        matches = suggestions.nearest(os.path.basename(wanted), by_base, limit=3)
        found = [by_base[match] for match in matches]
    if found:
        return ": did you mean " + " or ".join(f"'{name}'" for name in found) + "?"
    leaves = sorted(name for name in names if os.sep not in name)
    return f"; there are {', '.join(leaves)}" if leaves else ""


def _gin_files_in(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(_SUFFIX))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _gin_files_below(directory: str) -> list[str]:
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            if name.endswith(_SUFFIX):
                found.append(os.path.relpath(os.path.join(folder, name), directory))
    return sorted(found)

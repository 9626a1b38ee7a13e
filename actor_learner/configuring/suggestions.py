"""The nearest existing name, for messages about names that do not exist."""

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], limit: int = 1) -> list[str]:
    """The `limit` most similar of `names`, best first; none when nothing is similar.

    Differences of case and of underscores count for nothing: `DQN_Agent` is nearest to `dqnagent`.
    """
    plain = {}
    for candidate in names:
        plain.setdefault(_plain(candidate), candidate)
    found = difflib.get_close_matches(_plain(name), list(plain), n=limit, cutoff=0.6)
    return [plain[match] for match in found]


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """`": did you mean 'x'?"`, to be appended to a message, or nothing."""
    found = nearest(name, names)
    return f": did you mean '{prefix}{found[0]}'?" if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "")

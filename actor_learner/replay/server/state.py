"""The state of tables in our words: how full they are, who is blocked, what would unblock them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import reverb

from actor_learner.support import reverb_calls


@dataclasses.dataclass(frozen=True)
class TableState:
    """One table at one moment.

    Attributes:
      name: The table's name.
      size: Items it holds now.
      max_size: Items it holds at most; one more removes another.
      inserts: Items inserted since the table was made or reset.
      samples: Items sampled since then, counting repeats.
      unique_samples: Items sampled at least once.
      samples_per_insert: `samples / inserts`, as observed; 0 before the first insert.
      blocked: Which side would have to wait now: "sampling", "inserting" or nobody.
      why: What the blocked side waits for; empty where nobody is blocked.
      restarts: Of several servers that hold the table together, how often one was seen to have
        begun again with fewer inserts; 0 for a single one, whose inserts tell.
    """

    name: str
    size: int
    max_size: int
    inserts: int
    samples: int
    unique_samples: int
    samples_per_insert: float
    blocked: str | None
    why: str
    restarts: int = 0

    def describe(self) -> str:
        """One line, e.g. `table 'replay': 3 of 1000 items, ...; sampling waits: ...`."""
        line = (
            f"table {self.name!r}: {self.size} of {self.max_size} items, {self.inserts} inserted, "
            f"{self.samples} sampled ({self.samples_per_insert:.2f} per insert)"
        )
        return f"{line}; {self.why}" if self.why else line


@dataclasses.dataclass(frozen=True)
class ReplayInfo:
    """All tables of one server at one moment, by name."""

    address: str
    tables: Mapping[str, TableState]

    def describe(self) -> str:
        """The address and one line per table."""
        lines = [f"replay server at {self.address}"]
        return "\n  ".join(lines + [table.describe() for table in self.tables.values()])


def table_state(client: reverb.Client, table: str, timeout_seconds: float = 5.0) -> TableState:
    """Asks the server, here or remote, for one table; blocks up to `timeout_seconds`.

    Raises:
      errors.ReplayTimeoutError: If the server does not answer in time.
      reverb_calls.UnknownTableError: If it has no such table.
    """
    return from_table_info(reverb_calls.fetch_table(client, table, timeout_seconds))


def from_table_info(info: reverb.reverb_types.TableInfo) -> TableState:
    """Translates what Reverb reports about a table."""
    limiter = info.rate_limiter_info
    inserts = limiter.insert_stats.completed
    samples = limiter.sample_stats.completed
    blocked, why = _explain(info, inserts, samples)
    return TableState(
        name=info.name,
        size=info.current_size,
        max_size=info.max_size,
        inserts=inserts,
        samples=samples,
        unique_samples=info.num_unique_samples,
        samples_per_insert=samples / inserts if inserts else 0.0,
        blocked=blocked,
        why=why,
    )


def total(infos: Sequence[reverb.reverb_types.TableInfo], restarts: int) -> TableState:
    """The state of a table that several servers hold together, each a share.

    It can be sampled when one of them can, and all together hold the items that they need. It takes
    inserts as long as one of them does.
    """
    states = [from_table_info(info) for info in infos]
    size = sum(one.size for one in states)
    needed = sum(info.rate_limiter_info.min_size_to_sample for info in infos)
    blocked, why = None, ""
    waiting = [one for one in states if one.blocked == "sampling"]
    if size < needed or len(waiting) == len(states):
        blocked = "sampling"
        why = f"sampling waits: {size} of the {needed} items that {len(states)} servers need"
    elif all(one.blocked == "inserting" for one in states):
        blocked, why = "inserting", states[0].why
    inserts = sum(one.inserts for one in states)
    samples = sum(one.samples for one in states)
    return TableState(
        name=states[0].name,
        size=size,
        max_size=sum(one.max_size for one in states),
        inserts=inserts,
        samples=samples,
        unique_samples=sum(one.unique_samples for one in states),
        samples_per_insert=samples / inserts if inserts else 0.0,
        blocked=blocked,
        why=why,
        restarts=restarts,
    )


def _explain(
    info: reverb.reverb_types.TableInfo, inserts: int, samples: int
) -> tuple[str | None, str]:
    """Who is blocked and why, by the rate limiter's rule.

    Below its minimum size a table gives no sample and takes every insert. From there on a call is
    allowed while `inserts * samples_per_insert - samples` stays within `[min_diff, max_diff]`.
    """
    limiter = info.rate_limiter_info
    if info.current_size < limiter.min_size_to_sample:
        if samples:
            when = f"items needed again ({samples} were sampled before the table shrank)"
        else:
            when = "items needed before the first sample"
        return "sampling", (
            f"sampling waits: {info.current_size} of the {limiter.min_size_to_sample} {when}"
        )
    ratio = limiter.samples_per_insert
    lead = inserts * ratio - samples
    if lead - 1 < limiter.min_diff:
        return "sampling", (
            f"sampling waits for inserts: {samples} samples of {inserts} inserts is as far as "
            f"{ratio:g} samples per insert allow"
        )
    if lead + ratio > limiter.max_diff:
        return "inserting", (
            f"inserting waits for samples: {inserts} inserts for {samples} samples is as far as "
            f"{ratio:g} samples per insert allow"
        )
    return None, ""

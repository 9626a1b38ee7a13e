"""The learning side of a league: its players, their results, and whom to play next."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from actor_learner import run_directory
from actor_learner.league import elo, payoff, picture, reported_payoff, sampling, settings
from actor_learner.parameters import store as store_lib
from actor_learner.parameters import variables
from actor_learner.runs import epoch as epoch_lib
from actor_learner.runs.evaluation import best_policy
from actor_learner.runs.league.league_opponents import Lineup
from actor_learner.support import atomic, counters, disk_space, unsaved

PREFIX = "league-"
FILE, PICTURE = "league.json", "league.png"

_GAMES_PER_LINEUP = 512
"""Games after which win rates have changed enough to compute the probabilities again."""


class Member(NamedTuple):
    """A player of the league.

    Attributes:
      name: Also its tag in the parameter store.
      version: The train step it was taken at.
      environment_steps: Environment steps by then.
    """

    name: str
    version: int
    environment_steps: int


class LeagueKeeper(tf.train.experimental.PythonState):
    """Keeps a league in the run directory, and in the learner's checkpoints.

    The learner already has the name under which it joins next: games that it plays until then
    count for that player. A player is announced only once a checkpoint has it. So a learner that
    resumes, whichever process was killed, has all players that others know of, and is told again
    of games that it has forgotten. `league.json` and `league.png` are copies for people
    to read.

    May be used from several threads.

    Args:
      league: How often a player joins, and who is played.
      run: The run directory.
      policy: The policy that is trained; its variables are stored.
      train_step: Counts train steps.
      environment_step: Counts environment steps.
      epoch: Epoch of this learner; a superseded one writes nothing.
    """

    def __init__(
        self,
        league: settings.League,
        run: run_directory.RunDirectory,
        policy: Any,
        *,
        train_step: tf.Variable,
        environment_step: tf.Variable,
        epoch: epoch_lib.Epoch,
    ) -> None:
        self._league = league
        self._run = run
        self._store = store_lib.ParameterStore(run.path / store_lib.DIRECTORY)
        self._policy = policy
        self._train_step = train_step
        self._environment_step = environment_step
        self._epoch = epoch
        self._lock = threading.RLock()
        self._members: list[Member] = []
        self._reported = reported_payoff.ReportedPayoff()
        self._lineup: Lineup | None = None
        self._games_of_lineup = 0

    @property
    def members(self) -> tuple[Member, ...]:
        """All players, the oldest first."""
        with self._lock:
            return tuple(self._members)

    @property
    def table(self) -> payoff.PayoffTable:
        """A copy of the results of all games."""
        with self._lock:
            return payoff.PayoffTable(self._reported.table.records)

    @property
    def player(self) -> str:
        """The current name of the learner."""
        return f"{PREFIX}{len(self._members)}"

    def ratings(self) -> dict[str, float]:
        """Computes the Elo ratings of all players that have played."""
        return elo.ratings(self.table, f"{PREFIX}0")

    def start(self, save: Callable[[], Any]) -> None:
        """Begins the league with the current policy, unless a checkpoint has restored one.

        Args:
          save: Saves a checkpoint; returns None if the disk is full.

        Raises:
          OSError: If the disk is full, so that there is nobody to play.
        """
        if not self._members and not self.join(save):
            raise disk_space.full(self._run.path)

    def join_if_due(self, save: Callable[[], Any]) -> bool:
        """Lets the policy join if it is time; returns whether it has. Arguments as in `start`."""
        since = int(counters.read(self._environment_step)) - self._members[-1].environment_steps
        return since >= self._league.interval and self.join(save)

    def join_at_the_end(self, save: Callable[[], Any]) -> bool:
        """Lets the policy join if it was trained since the last player joined."""
        trained = int(counters.read(self._train_step)) > self._members[-1].version
        return trained and self.join(save)

    def join(self, save: Callable[[], Any]) -> bool:
        """Lets the current policy join: stores it, and saves a checkpoint that has it.

        Returns:
          False if the disk is full; the next call tries again.
        """
        with self._lock:
            member = Member(
                self.player,
                int(counters.read(self._train_step)),
                int(counters.read(self._environment_step)),
            )
        pushed = unsaved.ledger().attempt(
            f"the player {member.name}",
            lambda: self._push(member),
            where=self._run.path,
            retry=False,
            if_due=True,
        )
        if pushed is None:
            return False
        with self._lock:
            self._members.append(member)
        if save() is None:
            with self._lock:
                self._members.remove(member)
            return False
        with self._lock:
            self._lineup = None
        logging.info("%s joins the league, at train step %d.", member.name, member.version)
        self.write()
        return True

    def lineup(self) -> Lineup:
        """Returns whom to play; the same object until a player joins or many games have ended."""
        with self._lock:
            games = self._reported.table.games
            if self._lineup is None or games - self._games_of_lineup >= _GAMES_PER_LINEUP:
                self._lineup, self._games_of_lineup = self._make_lineup(), games
            return self._lineup

    def values(self, name: str) -> dict[str, np.ndarray]:
        """Reads the parameters of a player from the store.

        Raises:
          store_lib.ParameterError: If there is no such player, or its file is damaged.
        """
        return self._store.get(best_policy.POLICY, _identifier(name)).values

    def count(self, player: str, opponent: str, record: payoff.Record) -> None:
        """Counts games of this process."""
        with self._lock:
            self._reported.table.add(player, opponent, record)

    def take(self, actor: str, process: str, totals: reported_payoff.Totals) -> int:
        """Counts what is new in the totals of another process: see `ReportedPayoff`."""
        with self._lock:
            return self._reported.take(actor, process, totals)

    def write(self) -> None:
        """Writes `league.json`."""
        unsaved.ledger().attempt(FILE, self._write, where=self._run.path)

    def draw(self) -> None:
        """Writes `league.json` and draws `league.png`."""
        self.write()
        unsaved.ledger().attempt(PICTURE, self._draw, where=self._run.path)

    def serialize(self) -> str:
        with self._lock:
            return json.dumps({"members": self._members, "payoff": self._reported.state()})

    def deserialize(self, string_value: str) -> None:
        state = json.loads(string_value)
        with self._lock:
            self._members = [Member(*member) for member in state["members"]]
            self._reported.restore(state["payoff"])
            self._lineup = None

    def _push(self, member: Member) -> Any:
        self._epoch.require_latest()
        metadata: dict[str, Any] = {
            "environment_steps": member.environment_steps,
            "epoch": self._epoch.number,
            "player": member.name,
        }
        record = self.table.total(member.name)
        if record.games:
            metadata["games"] = record.games
            metadata["win_rate"] = round(record.score / record.games, 4)
            metadata["elo"] = round(self.ratings()[member.name], 1)
        return self._store.push(
            best_policy.POLICY,
            variables.values_of(self._policy),
            member.version,
            tags=[member.name],
            metadata=metadata,
        )

    def _make_lineup(self) -> Lineup:
        table, league = self._reported.table, self._league
        past = sampling.thinned([each.name for each in self._members], league.max_players)
        lately = [self.player, self._members[-1].name]
        rates = {
            name: sampling.win_rate(
                table.against(lately[0], name).plus(table.against(lately[1], name))
            )
            for name in past
        }
        tagged = {}
        if any(kind.startswith(sampling.TAG) for kind in league.opponents):
            versions = self._store.tags(best_policy.POLICY)
            tagged = {tag: f"{tag}@{version}" for tag, version in versions.items()}
        players = sampling.candidates(league.opponents, past, rates, tagged, power=league.power)
        return Lineup(self.player, tuple(players))

    def _write(self) -> None:
        self._epoch.require_latest()
        table, ratings = self.table, self.ratings()
        content = {
            "members": [member._asdict() for member in self.members],
            "ratings": {name: round(rating, 1) for name, rating in ratings.items()},
            "payoff": [
                dict(zip(("player", "opponent", "wins", "draws", "losses"), row))
                for row in table.rows()
            ],
        }
        with atomic.replacing(self._run.path / FILE) as temporary:
            temporary.write_text(json.dumps(content, indent=1))

    def _draw(self) -> None:
        picture.draw(
            self._run.path / PICTURE,
            self._run.path.name,
            self.table,
            self.ratings(),
            {member.name: member.environment_steps for member in self.members},
        )


def _identifier(name: str) -> str:
    """Returns what identifies a player in the store: its tag, or the version that had the tag."""
    return name.rpartition("@")[2]

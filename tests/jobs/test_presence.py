"""A job asks whose its replay server is when it has reason to, and not otherwise."""

import pytest

from actor_learner.jobs import job, presence
from actor_learner.naming import memory
from actor_learner.support import errors


class Partner:
    """Raises what a test puts into `problem`; notes what it is asked."""

    def __init__(self):
        self.asked = []
        self.problem = None

    def require_same_run(self):
        self.asked.append("run")
        if self.problem is not None:
            raise self.problem

    def require_same_address(self):
        self.asked.append("address")


def make(partner, **settings):
    settings = {"trust_seconds": 1_000.0, **settings}
    actor = job.Job("actor", 0, "run", memory.MemoryRegistry("presence"))
    return presence.Presence(actor, partner, **settings)


def test_nobody_is_asked_while_there_is_no_doubt():
    partner = Partner()
    made = make(partner, trust_seconds=0.0, heard_seconds=lambda: 0.0)
    assert made.is_certain() and not made.is_away
    assert make(partner).is_certain()
    assert partner.asked == []


def test_the_server_is_asked_when_nothing_has_told_for_a_while():
    partner = Partner()
    assert make(partner, trust_seconds=-1.0).is_certain()
    assert make(partner, trust_seconds=-1.0, heard_seconds=lambda: 0.0).is_certain()
    assert partner.asked == ["run", "run"]


def test_after_an_outage_it_is_asked_until_it_answers():
    partner = Partner()
    made = make(partner)
    made.note_outage(errors.ReplayTimeoutError("silent"))
    assert made.is_away and partner.asked == ["address"]
    partner.problem = errors.ReplayTimeoutError("still silent")
    assert not made.is_certain() and made.is_away
    partner.problem = None
    assert made.is_certain() and not made.is_away
    assert partner.asked == ["address", "run", "address", "run"]
    assert made.is_certain() and len(partner.asked) == 4


def test_another_runs_server_is_refused():
    partner = Partner()
    made = make(partner)
    made.note_outage(errors.ReplayTimeoutError("silent"))
    partner.problem = errors.OtherRunError("another run's")
    with pytest.raises(errors.OtherRunError):
        made.is_certain()
    assert made.is_away

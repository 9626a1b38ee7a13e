"""How often learner and actors talk: with many actors no more often, in all, than with some."""

import math
import threading
import types
from concurrent import futures

import pytest
import tensorflow as tf

from actor_learner.jobs.exchange import inbox, publisher, reports
from actor_learner.jobs.exchange import news as news_lib
from actor_learner.messaging import local, messages, protocol
from actor_learner.runs.progress import reported_statistics

SECONDS = 20.0


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now


def make_news(train_step=0, *, actors=1, allowed=10**6, epoch=3, done=False):
    return news_lib.News(epoch, train_step, 0, 0, allowed, actors, done)


def report_of(actor, total):
    return {
        "actor": actor, "incarnation": f"process-{actor}", "total": total, "last": False,
        "episodes": 1,
        "version_lag_seconds": 0.5, "returns": [1.0, 2], "lengths": [10, 20],
        "time": {"stepping": 0.75, "waiting": 0.25},
    }  # fmt: skip


# The learner's news.


@pytest.mark.parametrize("followers, seconds", [(0, 0.05), (1, 0.05), (50, 0.05), (200, 0.2)])
def test_news_are_spaced_by_the_number_of_followers(monkeypatch, followers, seconds):
    clock = Clock()
    monkeypatch.setattr(publisher, "time", clock)
    wire = local.LocalServer({})
    made = publisher.Publisher(wire, [tf.Variable(1.0)], epoch=3, version=0, interval_seconds=0.5)
    heard = []
    for index in range(followers):
        wire.client(f"actor-{index}").follow(news_lib.TOPIC, lambda message: None)
    wire.client("evaluator-0").follow(news_lib.TOPIC, lambda m: heard.append(m.body["train_step"]))
    seconds = max(seconds, (followers + 1) / 1_000)
    made.tell(make_news(1))
    clock.now += 0.98 * seconds
    made.tell(make_news(2))
    assert heard == [1]
    clock.now += 0.04 * seconds
    made.tell(make_news(3))
    assert heard == [1, 3]
    made.tell(make_news(4, done=True))  # The end is told at once.
    assert heard == [1, 3, 4]


# An actor's reports.


class Actor:
    """A report sender whose other parts do what the test says."""

    def __init__(self, monkeypatch, actors):
        self.clock = Clock()
        monkeypatch.setattr(reports, "time", self.clock)
        self.sent = []
        self.answering = None  # The epoch of the learner that answers, if not that of the news.
        self.stopping = threading.Event()
        self.acting = types.SimpleNamespace(
            steps_taken=0,
            statistics=types.SimpleNamespace(episodes=0, returns=[], lengths=[]),
            time_shares=lambda: {"stepping": 0.75, "waiting": 0.25},
        )
        self.follower = types.SimpleNamespace(news=make_news(actors=actors), lag_seconds=0.0)
        self.sender = reports.ReportSender(
            types.SimpleNamespace(index=0, incarnation="first", stopping=self.stopping),
            types.SimpleNamespace(submit=self._submit, check=lambda: None),
            self.acting,
            self.follower,
            earlier=[("before", 70, 2)],
        )

    @property
    def totals(self):
        return [body["total"] for body in self.sent]

    def turn(self, steps=64):
        self.acting.steps_taken += steps
        self.sender.send()

    def _submit(self, kind, body, timeout_seconds):
        assert kind == news_lib.REPORT
        self.sent.append(body)
        answer = futures.Future()
        answer.set_result(
            messages.Message(
                kind,
                {"epoch": self.answering or self.follower.news.epoch, "environment_step": 0,
                 "rank": 0,
                 "num_actors": self.follower.news.num_actors},
            )
        )  # fmt: skip
        return answer


def test_a_single_actor_reports_every_turn(monkeypatch):
    actor = Actor(monkeypatch, actors=1)
    for _ in range(3):
        actor.turn()
        actor.clock.now += 0.01
    assert actor.totals == [64, 128, 192]


def test_steps_of_killed_processes_are_counted_before_others_are_taken(monkeypatch):
    actor = Actor(monkeypatch, actors=1)
    actor.follower.news = make_news(allowed=100)
    assert actor.sender.steps_left() == 100 - 70  # The learner may not know of the 70 yet.
    actor.turn()
    assert actor.sent[0]["earlier"] == [["before", 70, 2]]
    actor.sender.check()
    assert actor.sender.steps_left() == 100  # All are counted; this learner has said so.


def test_one_of_many_actors_reports_now_and_then_and_its_last_turn_soon(monkeypatch):
    actor = Actor(monkeypatch, actors=200)
    for _ in range(48):  # Three seconds, and a report every half a second.
        actor.turn()
        actor.clock.now += 1 / 16
    assert actor.totals == [64 + 512 * index for index in range(6)]
    for _ in range(2):
        actor.sender.check()
        actor.clock.now += 0.5
    assert actor.totals[-1] == 48 * 64
    actor.sender.check()
    assert len(actor.totals) == 7, "what is counted is not reported again"


def test_one_of_many_actors_that_must_wait_reports_at_once(monkeypatch):
    actor = Actor(monkeypatch, actors=200)
    actor.follower.news = make_news(actors=200, allowed=200 * 128)
    actor.turn()
    actor.turn()
    # The first is not counted before its answer is taken in, which the second turn does.
    assert actor.sender.steps_left() == 128 - 64
    assert actor.totals == [64]
    actor.turn()
    assert actor.sender.steps_left() <= 0
    assert actor.totals == [64, 192]


def test_a_new_learner_is_told_at_once(monkeypatch):
    actor = Actor(monkeypatch, actors=200)
    actor.turn()
    actor.sender.check()
    actor.follower.news = make_news(actors=200, epoch=4)
    actor.sender.check()
    assert actor.totals == [64, 64]


def test_earlier_processes_are_reported_to_each_learner_once_it_has_answered(monkeypatch):
    actor = Actor(monkeypatch, actors=1)
    for epoch in (3, 4):
        actor.follower.news = make_news(epoch=epoch)
        for _ in range(2):
            actor.turn()
            actor.clock.now += 1.0
    known = [["before", 70, 2]]
    assert [body["earlier"] for body in actor.sent] == [known, [], known, []]


def test_a_learner_that_answers_before_its_news_have_come_is_told_everything(monkeypatch):
    actor = Actor(monkeypatch, actors=1)
    actor.turn()
    actor.clock.now += 0.01
    actor.sender.check()
    actor.answering = 4  # The one of the news, 3, is dead: this one was restored from a checkpoint.
    actor.turn()
    actor.clock.now += 0.01
    actor.sender.check()
    assert [bool(body["earlier"]) for body in actor.sent] == [True, False, True]
    actor.follower.news = make_news(epoch=4)
    actor.clock.now += 0.01
    actor.sender.check()
    assert actor.totals == [64, 128, 128], "it has counted everything"


def test_the_last_report_does_not_wait(monkeypatch):
    actor = Actor(monkeypatch, actors=200)
    actor.turn()
    actor.turn()
    assert actor.totals == [64]
    actor.sender.finish(5.0)
    assert [(body["total"], body["last"]) for body in actor.sent] == [(64, False), (128, True)]


# The learner's inbox.


class Desk:
    """An inbox on a wire within the process."""

    def __init__(self, *actors):
        self.wire = local.LocalServer({}, topics=(news_lib.TOPIC,))
        self.environment_step = tf.Variable(5, dtype=tf.int64)
        self.statistics = reported_statistics.ReportedStatistics()
        self.results = []
        self.inbox = inbox.Inbox(
            self.wire,
            epoch=3,
            statistics=self.statistics,
            environment_step=self.environment_step,
            known_steps=lambda: 5 + self.inbox.steps,
            on_result=self._take_result,
        )
        self.clients = {}
        self.inbox.open()
        self.join(*actors)

    def join(self, *actors):
        for actor in actors:
            self.clients[actor] = self.wire.client(f"actor-{actor}")
            self.clients[actor].follow(news_lib.TOPIC, lambda message: None)

    def submit(self, body, kind=news_lib.REPORT):
        return self.wire.client("somebody").submit(kind, body, timeout_seconds=SECONDS)

    def _take_result(self, request):
        self.results.append(request.body["mean"])
        request.answer({"epoch": 3})


def test_reports_are_counted_and_answered_when_the_learner_takes_them_in():
    desk = Desk(0, 2)
    asked = [desk.submit(report_of(2, 64)), desk.submit(report_of(0, 100))]
    assert not any(answer.done() for answer in asked)
    desk.inbox.take_all()
    assert [answer.result(SECONDS).body for answer in asked] == [
        {"epoch": 3, "environment_step": 69, "rank": 1, "num_actors": 2},
        {"epoch": 3, "environment_step": 169, "rank": 0, "num_actors": 2},
    ]
    assert desk.inbox.actors == [0, 2]
    assert desk.inbox.steps == 164
    assert int(desk.environment_step) == 169
    assert desk.statistics.environment_steps == 164


def test_an_actor_that_reports_before_it_follows_has_its_place_among_the_others():
    desk = Desk(0, 2)
    answer = desk.submit(report_of(1, 1))
    desk.inbox.take_all()
    body = answer.result(SECONDS).body
    assert (body["rank"], body["num_actors"]) == (1, 3)


def test_actors_that_leave_make_room(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(inbox, "time", clock)
    desk = Desk(0, 1, 2)
    desk.inbox.take_all()
    assert desk.inbox.actors == [0, 1, 2]
    desk.clients[1].close()
    clock.now += 1.0
    answer = desk.submit(report_of(2, 1))
    desk.inbox.take_all()
    body = answer.result(SECONDS).body
    assert desk.inbox.actors == [0, 2]
    assert (body["rank"], body["num_actors"]) == (1, 2)


def test_an_actor_that_has_reported_for_the_last_time_is_not_there_until_it_reports_again(
    monkeypatch,
):
    clock = Clock()
    monkeypatch.setattr(inbox, "time", clock)
    desk = Desk(0, 1)
    for last, present in ((True, [1]), (False, [0, 1])):
        desk.submit({**report_of(0, 64), "last": last})
        for _ in range(2):  # The first takes the report in, the second looks who is there.
            clock.now += 1.0
            desk.inbox.take_all()
        assert desk.inbox.actors == present


@pytest.mark.parametrize("actors, seconds", [(3, 0.003), (200, 0.05)])
def test_reports_of_many_actors_are_taken_in_together(monkeypatch, actors, seconds):
    clock = Clock()
    monkeypatch.setattr(inbox, "time", clock)
    desk = Desk(*range(actors))
    desk.inbox.take_all()
    answer = desk.submit(report_of(1, 10))
    clock.now += 0.9 * seconds
    desk.inbox.take_all()
    assert not answer.done()
    clock.now += 0.2 * seconds
    desk.inbox.take_all()
    assert answer.done()


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"total": "64"}, "total is '64'"),
        ({"returns": None}, "returns of a report"),
        ({"returns": [1.0, "2"]}, "returns of a report"),
        ({"lengths": [1.5]}, "lengths of a report"),
        ({"lengths": [True]}, "lengths of a report"),
        ({"actor": None}, "actor is None"),
        ({"earlier": [["a", 1]]}, "earlier of a report"),
    ],
)
def test_what_is_not_a_report_is_refused_and_the_rest_taken_in(changes, why):
    desk = Desk(0)
    bad = desk.submit({**report_of(0, 64), **changes})
    good = desk.submit(report_of(0, 32))
    desk.inbox.take_all()
    with pytest.raises(protocol.RefusedError, match=why):
        bad.result(SECONDS)
    assert good.result(SECONDS).body["environment_step"] == 37


def test_results_of_evaluators_come_in_the_same_order():
    desk = Desk(0)
    answer = desk.submit({"evaluator": 0, "mean": 7.0}, kind=news_lib.RESULT)
    desk.inbox.take_all()
    assert answer.result(SECONDS).body == {"epoch": 3}
    assert desk.results == [7.0]


def test_steps_that_were_taken_in_before_a_failure_are_counted_everywhere():
    desk = Desk(0)
    desk.submit(report_of(0, 64))
    desk.submit({"evaluator": 0}, kind=news_lib.RESULT)
    with pytest.raises(KeyError):
        desk.inbox.take_all()
    assert int(desk.environment_step) == 69
    assert desk.inbox.steps == 64


def test_more_than_can_be_taken_in_is_refused(monkeypatch):
    monkeypatch.setattr(inbox, "_MAX_WAITING", 2)
    desk = Desk(0)
    asked = [desk.submit(report_of(0, total)) for total in (1, 2, 3)]
    with pytest.raises(protocol.RefusedError, match="too many messages waiting"):
        asked[2].result(SECONDS)
    desk.inbox.take_all()
    assert desk.inbox.steps == 2


def test_limits_are_of_all_together():
    assert news_lib.news_seconds(500) == pytest.approx(0.5)
    assert math.isclose(200 / news_lib.report_seconds(200), 400)


def test_an_actor_that_has_reported_for_the_last_time_is_not_counted_on():
    desk = Desk(0, 1)
    desk.submit({**report_of(0, 64), "last": True})
    desk.inbox.take_all()
    desk.inbox._taken_at = 0.0
    desk.inbox.take_all()
    assert desk.inbox.actors == [1]
    desk.submit(report_of(0, 64))  # Another process in its place.
    desk.inbox._taken_at = 0.0
    desk.inbox.take_all()
    desk.inbox._taken_at = 0.0
    desk.inbox.take_all()
    assert desk.inbox.actors == [0, 1]


def test_a_last_report_is_answered_when_a_checkpoint_holds_it():
    desk = Desk(0)
    answer = desk.submit({**report_of(0, 64), "last": True})
    desk.inbox.take_all()
    assert desk.inbox.steps == 64 and not answer.done()
    saved = []
    desk.inbox.answer_leaving(lambda: saved.append((desk.inbox.steps, answer.done())))
    assert saved == [(64, False)] and answer.done()
    desk.inbox.answer_leaving(lambda: saved.append("again"))
    assert len(saved) == 1


def test_an_actor_that_vanishes_without_a_last_report_is_lost_until_it_is_back(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(inbox, "time", clock)
    desk = Desk(0, 1)
    desk.inbox.take_all()
    assert desk.inbox.lost == []
    for actor in (0, 1):
        desk.clients[actor].close()
    clock.now += 1.0
    desk.inbox.take_all()
    assert desk.inbox.lost == [0, 1]
    desk.join(0)
    clock.now += 1.0
    desk.inbox.take_all()
    assert desk.inbox.lost == [1]
    clock.now += inbox._RESTART_SECONDS
    assert desk.inbox.lost == [], "nobody has started it again"


def test_an_evaluator_that_was_told_to_end_is_not_waited_for_until_it_is_back():
    desk = Desk()
    desk.submit({"evaluator": 2}, kind=news_lib.LEAVE)
    desk.inbox.take_all()
    assert desk.inbox.left == {2}
    desk.submit({"evaluator": 2, "mean": 7.0}, kind=news_lib.RESULT)
    desk.inbox._taken_at = 0.0
    desk.inbox.take_all()
    assert desk.inbox.left == set()

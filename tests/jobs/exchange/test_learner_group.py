"""Learners that add up their parts over the wire, and what becomes of those that fail."""

import contextlib
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from actor_learner.jobs.exchange import learner_group
from actor_learner.messaging import client, server
from actor_learner.parameters import packing
from actor_learner.support import errors, replicas

SECONDS = 60.0


class Group:
    """A chief and other learners, each with one variable of its own."""

    def __init__(self, closing, members=1, part_seconds=SECONDS, sizes=None):
        wire = closing.enter_context(server.Server({}))
        self.chief = learner_group.ChiefGroup(wire, epoch=7, part_seconds=part_seconds)
        sizes = sizes or [3] * (1 + members)
        self.variables = [tf.Variable(tf.fill([n], float(i))) for i, n in enumerate(sizes)]
        self.packed = [packing.Packing([variable]) for variable in self.variables]
        self.members = []
        for index in range(1, 1 + members):
            to_chief = closing.enter_context(client.Client(wire.address, who=f"learner-{index}"))
            member = learner_group.MemberGroup(to_chief, lambda i=index: self.packed[i])
            self.members.append(member)
        self.threads = closing.enter_context(futures.ThreadPoolExecutor(4))

    def join(self, member):
        joined = self.threads.submit(member.join, SECONDS)
        while not joined.done():
            self.chief.admit(lambda: self.packed[0])
        return joined.result()

    def send(self, member, *part):
        return self.threads.submit(member.sum, np.array(part, np.float32))

    def sum(self, *part):
        return self.chief.sum(np.array(part, np.float32))


@pytest.fixture
def closing():
    with contextlib.ExitStack() as stack:
        yield stack


def test_all_get_the_sum_of_all_parts_and_the_chiefs_variables(closing):
    group = Group(closing, members=2)
    for member in group.members:
        assert not member.is_joined
        assert group.join(member) and member.is_joined
    assert group.chief.size == 3
    for variable in group.variables:
        np.testing.assert_array_equal(variable, np.zeros(3))
    for number in (1, 2):
        sent = [group.send(member, i, number) for i, member in enumerate(group.members)]
        for total, members in [group.sum(10, number), *(one.result(SECONDS) for one in sent)]:
            np.testing.assert_array_equal(total, [11, 3 * number])
            assert members == 3


def test_one_that_is_late_is_left_out_until_it_joins_again(closing):
    group = Group(closing, part_seconds=0.05)
    (member,) = group.members
    group.join(member)
    total, members = group.sum(1)
    assert members == 1 and total == [1] and group.chief.size == 1
    with pytest.raises(learner_group.LeftGroupError, match="join again"):
        group.send(member, 5).result(SECONDS)
    assert not member.is_joined
    group.variables[0].assign([4.0, 5.0, 6.0])
    assert group.join(member)
    np.testing.assert_array_equal(group.variables[1], [4, 5, 6])


def test_one_that_has_failed_is_not_waited_for(closing):
    group = Group(closing)
    (member,) = group.members
    group.join(member)
    waiting = group.threads.submit(group.sum, 1)
    member.abandon()
    assert waiting.result(SECONDS)[1] == 1


def test_a_failed_train_step_of_the_chief_sends_all_others_away(closing):
    group = Group(closing)
    (member,) = group.members
    group.join(member)
    sent = group.send(member, 5)
    group.chief.abandon()
    with pytest.raises(learner_group.LeftGroupError):
        sent.result(SECONDS)
    # Its part, of a sum that was given up, is not in the next one.
    assert group.sum(1) == (np.array([1], np.float32), 1)


def test_one_whose_chief_is_gone_learns_of_it(closing):
    group = Group(closing)
    (member,) = group.members
    group.join(member)
    sent = group.send(member, 5)
    member._chief.close()  # As `Peer.check` does that has found a successor.
    with pytest.raises(learner_group.LeftGroupError):
        sent.result(SECONDS)
    assert not member.is_joined


def test_one_with_other_variables_is_refused(closing):
    group = Group(closing, sizes=[3, 100])
    with pytest.raises(errors.SpecMismatchError, match="448 bytes.*64.*other configurations"):
        group.join(group.members[0])
    assert group.chief.size == 1


def test_a_part_of_another_size_is_left_out(closing):
    group = Group(closing)
    (member,) = group.members
    group.join(member)
    sent = group.send(member, 5, 6)
    assert group.sum(1)[1] == 1
    with pytest.raises(learner_group.LeftGroupError, match="2 numbers, not 1"):
        sent.result(SECONDS)


class Doubling:
    """A group of two, of which the other always has the same part."""

    def sum(self, part):
        return 2 * part, 2


def test_numbers_of_the_whole_batch_in_a_group():
    @tf.function
    def take(x):
        with replicas.joined(Doubling()):
            assert replicas.are_several() and replicas.in_group()
            gradients = replicas.reduced([x, None, 3 * x])
            return (
                replicas.total({"x": x, "count": tf.size(x)}),
                replicas.loss_divisor(4.0),
                replicas.mean(x),
                gradients[0],
                gradients[2],
            )

    summed, divisor, mean, first, last = take(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(summed["x"], [2, 4])
    assert summed["count"] == 4 and summed["count"].dtype == tf.int32
    # Both have as many items, and the mean of their means is that over the batch.
    assert divisor == 4.0 and mean == 1.5
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(last, [3, 6])
    assert not replicas.are_several()


class Noting:
    """A group of one that notes in which order it was asked."""

    def __init__(self):
        self.parts = []

    def sum(self, part):
        self.parts.append(part.tolist())
        return part, 1


def test_sums_are_asked_for_in_the_order_of_the_program_through_loops_and_functions():
    group = Noting()

    def slow(x):
        time.sleep(0.05)  # For long enough that what does not wait for it comes first.
        return x

    @tf.function
    def inner(x):
        return replicas.total(tf.numpy_function(slow, [x], tf.float32))

    @tf.function(autograph=False)
    def take():
        with replicas.joined(group):
            replicas.total(tf.constant(1.0))
            inner(tf.constant(2.0))
            replicas.total(tf.constant(3.0))

            def body(number):
                replicas.total(tf.numpy_function(slow, [tf.constant(4.0)], tf.float32))
                replicas.total(tf.constant(5.0))
                return number + 1

            tf.while_loop(lambda number: number < 2, body, [tf.constant(0)])
            replicas.total(tf.constant(6.0))

    take()
    assert sum(group.parts, []) == [1, 2, 3, 4, 5, 4, 5, 6]

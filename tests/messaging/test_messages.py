"""Messages: what was encoded comes back, and nothing else passes."""

import msgpack
import numpy as np
import pytest

from actor_learner.messaging import messages

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]


def there_and_back(message):
    return messages.decode([bytes(frame) for frame in messages.encode(message)])


def test_plain_values_come_back_as_they_were():
    body = {"step": 2**40, "rate": 0.5, "who": "actor-3", "done": False, "none": None, "l": [1, {}]}
    back = there_and_back(messages.Message("news", body, id=7, error="no"))
    assert (back.kind, back.body, back.id, back.error) == ("news", body, 7, "no")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_arrays_come_back_bit_by_bit(dtype, shape):
    array = (np.random.default_rng(0).random(shape) * 2).astype(dtype)
    back = there_and_back(messages.Message("x", arrays={"a": array})).arrays["a"]
    assert back.dtype == array.dtype and back.shape == array.shape
    np.testing.assert_array_equal(back, array)
    assert not back.flags.writeable


def test_an_array_that_is_not_contiguous_is_sent_in_row_major_order():
    array = np.arange(6).reshape(2, 3).T
    np.testing.assert_array_equal(
        there_and_back(messages.Message("x", arrays={"a": array})).arrays["a"], array
    )


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([object()]), np.zeros(1, "f4,i4")])
def test_arrays_of_other_kinds_are_refused_by_the_sender(array):
    with pytest.raises(messages.BadMessageError, match="cannot be sent"):
        messages.encode(messages.Message("x", arrays={"a": array}))


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**70, np.float32(1)])
def test_values_that_msgpack_does_not_know_are_refused_by_the_sender(value):
    with pytest.raises(messages.BadMessageError, match="cannot be sent"):
        messages.encode(messages.Message("x", {"value": value}))


def header(**changes):
    fields = dict(format=messages.FORMAT, kind="x", id=1, error=None, body={}, described=[])
    return msgpack.packb(list({**fields, **changes}.values()))


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xc1"],
        [msgpack.packb({"kind": "x"})],
        [msgpack.packb([1, 2])],
        [header(format=messages.FORMAT + 1)],
        [header(kind=3)],
        [header(id=-1)],
        [header(id=True)],
        [header(error=1)],
        [header(body=[])],
        [header(body={1: 2})],
        [header(described={})],
        [header(), b"more"],
        [header(described=[["a", "uint8", [4]]])],
        [header(described=[["a", "uint8", [4]]]), b"abc"],
        [header(described=[["a", "object", [1]]]), b"12345678"],
        [header(described=[["a", "uint8", [-3]]]), b"abc"],
        [header(described=[["a", "uint8", [2**62, 4]]]), b"abc"],
        [header(described=[["a", "uint8", [1] * 17]]), b"a"],
        [header(described=[["a", "bool", [1]]]), b"\x02"],
        [header(described=[["a", "uint8", [1]], ["a", "uint8", [1]]]), b"a", b"b"],
        [header(described=[3]), b"a"],
        [b"\x00" * (messages.MAX_HEADER_BYTES + 1)],
    ],
)
def test_frames_that_are_not_a_message_are_refused(frames):
    with pytest.raises(messages.BadMessageError):
        messages.decode(frames)


def test_a_message_is_refused_unless_it_has_the_arrays_asked_for():
    message = messages.Message("act", arrays={"a": np.zeros((2, 3), np.float32)})
    messages.require_arrays(message, {"a": messages.ArraySpec(np.float32, (None, 3))})
    for spec in (
        {},
        {"b": messages.ArraySpec(np.float32, (2, 3))},
        {"a": messages.ArraySpec(np.float64, (2, 3))},
        {"a": messages.ArraySpec(np.float32, (2, 4))},
        {"a": messages.ArraySpec(np.float32, (2,))},
    ):
        with pytest.raises(messages.BadMessageError, match="message 'act'"):
            messages.require_arrays(message, spec)

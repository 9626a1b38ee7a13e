"""The file format: every type of number comes back, and no damage goes unnoticed."""

import json
import zipfile

import ml_dtypes
import numpy as np
import pytest

from actor_learner.parameters import archive, parameter_errors


def save(path, values, **more):
    archive.save(path, values, name="policy", version=7, **more)


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for key, array in expected.items():
        assert got[key].dtype == np.asarray(array).dtype, key
        np.testing.assert_array_equal(got[key], array)


def test_numbers_of_every_type_and_shape_come_back(tmp_path):
    values = {
        "float32": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
        "float64": np.array([np.pi, 1e300, -0.0]),
        "float16": np.array([1.5], np.float16),
        "int64": np.array([-(2**62), 2**62]),
        "uint8": np.arange(256, dtype=np.uint8),
        "bool": np.array([[True, False]]),
        "complex64": np.array([1 + 2j], np.complex64),
        "bfloat16": np.array([[0.1, -3.0], [7.0, 1e30]], ml_dtypes.bfloat16),
        "float8_e5m2": np.array([1.5, -2.0], ml_dtypes.float8_e5m2),
        "scalar": np.float32(3.25),
        "bfloat16 scalar": np.array(2.5, ml_dtypes.bfloat16),
        "empty": np.zeros([0, 4], np.float32),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "QNetwork/dense/kernel#2": np.ones([4, 2], np.float32),
    }
    save(tmp_path / "a.npz", values, metadata={"mean_return": 480.5}, created=12.0)
    header, got = archive.read(tmp_path / "a.npz")

    assert_same(got, values)
    assert header == archive.read_header(tmp_path / "a.npz")
    assert (header.name, header.version, header.created) == ("policy", 7, 12.0)
    assert header.metadata == {"mean_return": 480.5}
    assert header.arrays["bfloat16"] == ("bfloat16", (2, 2))


def test_numpy_alone_can_read_the_file(tmp_path):
    values = {"dense/kernel": np.eye(3, dtype=np.float32), "dense/bias": np.arange(3)}
    save(tmp_path / "a.npz", values)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
        assert_same({key: loaded[key] for key in values}, values)
        assert json.loads(loaded["parameters.json"])["version"] == 7


def test_any_damaged_byte_is_found_or_does_no_harm(tmp_path):
    values = {"kernel": np.arange(20).astype(ml_dtypes.bfloat16)}
    path = tmp_path / "a.npz"
    save(path, values, metadata={"a": 1})
    whole = path.read_bytes()
    sound = archive.read(path)
    harmless = 0
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        path.write_bytes(broken)
        try:
            header, got = archive.read(path)
        except parameter_errors.DamagedParametersError as error:
            assert str(path) in str(error)
            continue
        harmless += 1
        assert header == sound[0]
        assert_same(got, sound[1])
    # Dates, attributes and the like.
    assert harmless < len(whole) / 4


def test_any_truncation_is_found(tmp_path):
    path = tmp_path / "a.npz"
    save(path, {"kernel": np.arange(20, dtype=np.float32)})
    whole = path.read_bytes()
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        with pytest.raises(parameter_errors.DamagedParametersError):
            archive.read(path)
        with pytest.raises(parameter_errors.DamagedParametersError):
            archive.read_header(path)


def test_files_of_others_are_refused_and_nothing_in_them_is_unpickled(tmp_path):
    np.savez(tmp_path / "plain.npz", kernel=np.ones(3))
    with pytest.raises(parameter_errors.DamagedParametersError, match="not a file of parameters"):
        archive.read(tmp_path / "plain.npz")

    path = tmp_path / "pickled.npz"
    save(path, {"kernel": np.ones(3)})
    header = json.loads(zipfile.ZipFile(path).read("parameters.json"))
    header["arrays"] = {"kernel": ["object", [1]]}
    with zipfile.ZipFile(path, "w") as rewritten:
        rewritten.writestr("parameters.json", json.dumps(header))
        with rewritten.open("kernel.npy", "w") as member:
            np.lib.format.write_array(member, np.array([print], object), allow_pickle=True)
    with pytest.raises(parameter_errors.DamagedParametersError, match="allow_pickle"):
        archive.read(path)


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, "not empty"),
        ([1.0], "must be a dictionary"),
        ({"a": np.array(["text"])}, "'a' is of type <U4"),
        ({"a": {"b": 1.0}}, "'a' is of type object"),
        ({"a": None}, "'a' is of type object"),
        ({"a": np.zeros(1, [("x", "f4")])}, "'a' is of type"),
        ({3: 1.0}, "3 cannot be the name"),
        ({"": 1.0}, "'' cannot be the name"),
        ({"two\nlines": 1.0}, "cannot be the name"),
    ],
)
def test_only_flat_dictionaries_of_numbers_are_taken(tmp_path, values, message):
    with pytest.raises(parameter_errors.ParameterError, match=message):
        save(tmp_path / "a.npz", values)
    assert list(tmp_path.iterdir()) == []


def test_metadata_may_hold_numpys_numbers_and_must_be_json(tmp_path):
    save(tmp_path / "a.npz", {"a": 1.0}, metadata={"r": np.float32(0.5), "n": np.int64(3)})
    assert archive.read_header(tmp_path / "a.npz").metadata == {"r": 0.5, "n": 3}
    with pytest.raises(parameter_errors.ParameterError, match="cannot be written as JSON"):
        save(tmp_path / "b.npz", {"a": 1.0}, metadata={"r": np.ones(3)})
    with pytest.raises(parameter_errors.ParameterError, match="must be a dictionary"):
        save(tmp_path / "b.npz", {"a": 1.0}, metadata=["r"])


def test_an_existing_file_is_not_replaced(tmp_path):
    save(tmp_path / "a.npz", {"a": 1.0})
    with pytest.raises(parameter_errors.ParameterError, match="exists already"):
        save(tmp_path / "a.npz", {"a": 2.0})
    with pytest.raises(parameter_errors.ParameterError, match="cannot be written"):
        save(tmp_path / "nowhere" / "a.npz", {"a": 2.0})
    assert archive.read(tmp_path / "a.npz")[1] == {"a": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]

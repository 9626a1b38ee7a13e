"""How rows of all lanes become cells of a table: the layout that writer and reader share.

Reverb keeps about 1.5 kB of its own per item and per chunk, whatever is in it, and its cost of
reading is per item too. So `rows_per_item` consecutive rows of all lanes form one *cell*, and an
item refers to the cell its transitions start in and to those around it that they reach into:

    item = cells_before | the cell whose rows start transitions | cells_after

Neighbouring items share cells, so that every row is stored once.

All small fields of a cell share one column of 32-bit words, field after field: what is alike in all
rows then compresses to nothing, and a reader gets at a field without touching the others. Fields
that are large (images) keep a column of their own, and of stacked frames only the newest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from actor_learner.replay.layouts import codec, frame_stacks
from actor_learner.support import errors

FILLER = 3
"""Step type of rows that fill up a cell where a stream of rows ends; no environment gives it."""

STEP_TYPE, NEXT_STEP_TYPE = "step_type", "next_step_type"

_WORD = 4


class Part(NamedTuple):
    """A field in the record.

    Attributes:
      field: Path, shape for one lane, type.
      offset: Words before it, for one lane of one row.
      num_words: Words it takes up, for one lane of one row.
    """

    field: codec.Field
    offset: int
    num_words: int


MANY_LANES = 64
"""From here on a few more rows of an item hardly make its transitions more alike."""


def rows_per_item(data_spec: Any, num_lanes: int) -> int:
    """As many rows as make an item of 4 kB: large beside the 1.5 kB that Reverb adds.

    Many lanes make items of 8 kB: writing costs by the item, and they write the most.
    """
    item_bytes = 8192 if num_lanes >= MANY_LANES else 4096
    return max(1, -(-item_bytes // (num_lanes * codec.row_bytes(data_spec))))


class BlockLayout:
    """The layout of cells and items.

    Args:
      data_spec: Nest of array or tensor specs of one step of one lane; usually
        `agent.collect_data_spec`, a `Trajectory`.
      num_lanes: Lanes per row.
      n_step: Steps that a transition spans.
      rows_per_item: Rows whose transitions form one item.
      frame_stack: Frames per observation, if it is made of the latest frames; None stores
        observations as they are.

    Attributes:
      stacks: Fields of which only the newest frame is stored, by path.
      parts: The fields of the record, by path.
      large: The fields with a column of their own, by path; of stacked ones a frame.
      cells_before: Cells of an item that only hold older frames.
      cells_after: Cells of an item that transitions reach into.
    """

    def __init__(
        self,
        data_spec: Any,
        num_lanes: int,
        *,
        n_step: int = 1,
        rows_per_item: int = 1,
        frame_stack: int | None = None,
    ) -> None:
        if n_step < 1 or rows_per_item < 1:
            raise ValueError(f"n_step and rows_per_item: {n_step} and {rows_per_item} below 1")
        self.num_lanes = num_lanes
        self.n_step = n_step
        self.rows_per_item = rows_per_item
        self.data_spec = data_spec
        self.observed = codec.StepCodec(data_spec, num_lanes)  # Steps as observers get them.
        self.stacks = frame_stacks.find(self.observed.fields, frame_stack)
        history = max((stack.size - 1 for stack in self.stacks.values()), default=0)
        self.cells_before = -(-history // rows_per_item)
        self.cells_after = -(-n_step // rows_per_item)
        self.parts: dict[str, Part] = {}
        self.large: dict[str, codec.Field] = {}
        self.record_words = 0
        self._place_fields()

    @property
    def cells_per_item(self) -> int:
        return self.cells_before + 1 + self.cells_after

    @property
    def history_rows(self) -> int:
        """Rows of an item that only hold older frames."""
        return self.cells_before * self.rows_per_item

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the Reverb columns."""
        return (codec.RECORD, *self.large)

    def signature(self) -> dict[str, tf.TensorSpec]:
        """Signature of the table; the record's name carries a digest of the whole layout."""
        cells, lanes = self.cells_per_item, self.num_lanes
        shape = [cells, self.rows_per_item * lanes * self.record_words]
        signature = {codec.RECORD: tf.TensorSpec(shape, tf.int32, f"record_{self.digest()}")}
        for path, field in self.large.items():
            shape = [cells, self.rows_per_item, lanes, *field.shape]
            signature[path] = tf.TensorSpec(shape, field.dtype, path)
        return signature

    def digest(self) -> str:
        """Changes when any field, the stacks or the shape of items do."""
        return codec.digest(
            f"{self.observed.digest()};{self.n_step};{self.rows_per_item};{self.stacks}"
        )

    def check(self, trajectory: Any, table: str) -> None:
        """Compares a step with the spec; see `StepCodec.check`."""
        self.observed.check(trajectory, table)

    def empty_rows(self, num_rows: int) -> Rows:
        """Zeroed rows, which count as the middle of an episode unless told otherwise."""
        count = num_rows * self.num_lanes
        record = np.zeros(count * self.record_words, np.int32)
        fields = {}
        for path, (field, offset, num_words) in self.parts.items():
            start = count * offset * _WORD
            width = num_words * _WORD
            inner = np.empty(field.shape, field.dtype).strides
            fields[path] = np.ndarray(
                (num_rows, self.num_lanes, *field.shape),
                field.dtype,
                record,
                start,
                (self.num_lanes * width, width, *inner),
            )
        for path, field in self.large.items():
            fields[path] = np.zeros((num_rows, self.num_lanes, *field.shape), field.dtype)
        for path in (STEP_TYPE, NEXT_STEP_TYPE):
            fields[path][...] = ts.StepType.MID
        return Rows(record, fields, tuple(self.large))

    def read(self, columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """All fields by path, `[items * rows * lanes, ...]`, of columns `[items, cells, ...]`."""
        count = self.rows_per_item * self.num_lanes
        sizes = [count * part.num_words for part in self.parts.values()]
        pieces = tf.split(columns[codec.RECORD], sizes, axis=-1)
        fields = {}
        for (path, part), piece in zip(self.parts.items(), pieces):
            # [items, cells, words] to [rows, bytes]; small values do not fill up their last word.
            row_bytes = tf.reshape(tf.bitcast(piece, tf.uint8), [-1, part.num_words * _WORD])
            fields[path] = codec.decode(row_bytes[:, : part.field.num_bytes], part.field)
        for path, field in self.large.items():
            fields[path] = tf.reshape(columns[path], [-1, *field.shape])
        return fields

    def nest(self, fields: dict[str, tf.Tensor]) -> Any:
        """A nest like the data spec of the fields by path."""
        return tree.unflatten_as(
            self.data_spec, [fields[field.path] for field in self.observed.fields]
        )

    def padding_path(self, path: str) -> str:
        """Where the record says how the stacks of `path` are filled up at an episode's start."""
        return f"{path}/padding"

    def _place_fields(self) -> None:
        version = codec.Field(codec.VERSION, (), np.dtype(np.int64))
        paddings = [
            codec.Field(self.padding_path(path), (), np.dtype(np.uint8)) for path in self.stacks
        ]
        for field in [*self.observed.fields, version, *paddings]:
            if not field.num_bytes:
                raise errors.SpecMismatchError(
                    f"field '{field.path}' of shape {field.shape} is empty: nothing can be stored"
                )
            if field.path in self.stacks:
                field = field._replace(shape=self.stacks[field.path].frame_shape)
            if field.is_large:
                self.large[field.path] = field
            else:
                num_words = -(-field.num_bytes // _WORD)
                self.parts[field.path] = Part(field, self.record_words, num_words)
                self.record_words += num_words


class Rows(NamedTuple):
    """Consecutive rows, in the writer's memory.

    Attributes:
      record: Words of the small fields.
      fields: All fields, `[rows, lanes, ...]`, by path; of small ones views into `record`.
      large: Paths of those with columns of their own.
    """

    record: np.ndarray
    fields: dict[str, np.ndarray]
    large: tuple[str, ...]

    def cell(self) -> dict[str, np.ndarray]:
        """The rows as one cell of each column; not copied."""
        return {codec.RECORD: self.record, **{path: self.fields[path] for path in self.large}}

    def put(self, target: int, source: Rows, row: int) -> None:
        """Copies one row of other rows."""
        for path, column in self.fields.items():
            column[target] = source.fields[path][row]

    def fill_up(self, start: int) -> None:
        """Makes fillers of the rows from `start` on."""
        for column in self.fields.values():
            column[start:] = 0
        for path in (STEP_TYPE, NEXT_STEP_TYPE):
            self.fields[path][start:] = FILLER

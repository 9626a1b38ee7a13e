"""Converts a graph to a TFLite model, without a word on the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from actor_learner.inference import lite_operations

_CHATTER = re.compile(
    rb"tf_tfl_flatbuffer_helpers\.cc|flatbuffer_export\.cc|^Summary on the non-converted ops"
    rb"|^INFO: Created TensorFlow Lite XNNPACK delegate"
    rb"|^-{10,}$|^ \* |^- \w+\.\w+: |^  \([\w<>]+: \d+|^\s*$"
    rb"|^(loc\(|error: |<unknown>:)|^Some ops |^(Custom|Flex) ops: |^Details:|^\ttf\."
)
_converting = threading.Lock()


class Converted(NamedTuple):
    """A graph as a TFLite model.

    Attributes:
      model: The model.
      interpreter: Of the model, with its tensors allocated.
    """

    model: bytes
    interpreter: tf.lite.Interpreter


def converted(
    graph: tf.Graph, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]
) -> Converted:
    """Converts a graph.

    Inputs and outputs have the order that they are given in.

    Raises:
      lite_operations.UnconvertibleError: If TFLite lacks an operation.
    """
    converter = tf.compat.v1.lite.TFLiteConverter(graph.as_graph_def(), list(inputs), list(outputs))
    try:
        with _quiet():
            model = converter.convert()
            # The first delegate of a process tells standard error that it was made.
            tf.lite.Interpreter(model_content=model, num_threads=1).allocate_tensors()
        interpreter = tf.lite.Interpreter(
            model_content=model,
            num_threads=1,  # More cost, and do not pay, below some 256 lanes.
            # The default delegate has nothing to offer for weights that are inputs.
            experimental_op_resolver_type=(
                tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            ),
        )
        interpreter.allocate_tensors()
    except Exception as error:
        # The converter raises errors of several kinds, all with a long report in their text.
        raise lite_operations.UnconvertibleError(_reason(error)) from error
    return Converted(model, interpreter)


def input_indices(
    interpreter: tf.lite.Interpreter, placeholders: Sequence[tf.Tensor]
) -> dict[Any, int]:
    """Indices of inputs by `placeholder.ref()`; inputs that no operation uses have none."""
    by_name = {each["name"]: each["index"] for each in interpreter.get_input_details()}
    return {
        placeholder.ref(): by_name[placeholder.op.name]
        for placeholder in placeholders
        if placeholder.op.name in by_name
    }


def _reason(error: Exception) -> str:
    text = str(error)
    missing = sorted(set(re.findall(r"'tf\.(\w+)' op is neither", text)))
    if missing:
        return f"TFLite has no equivalent of {', '.join(missing)}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"TFLite refuses it: {lines[0] if lines else type(error).__name__}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the converter's reports off standard error; other lines written meanwhile stay.

    Standard error is redirected for the whole process, for the tenths of a second that a conversion
    takes. There is no other way: a pass of the compiler prints its "Summary on the non-converted
    ops" straight to the descriptor, whatever TF_CPP_MIN_LOG_LEVEL, absl's verbosity or the
    converter's options say, and converting in a process of its own would import TensorFlow again.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_converting)
        stack.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity(min(logging.get_verbosity(), logging.WARNING))
        try:
            original = os.dup(2)
        except OSError:  # Closed: nobody is disturbed.
            yield
            return
        held = stack.enter_context(os.fdopen(os.memfd_create("tflite"), "w+b"))
        try:
            os.dup2(held.fileno(), 2)
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)
            held.seek(0)
            others = b"".join(line for line in held if not _CHATTER.search(line.rstrip(b"\n")))
            if others:
                os.write(2, others)

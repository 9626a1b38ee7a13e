"""Many train steps as one TensorFlow call, and the plan of which calls record summaries."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf

from actor_learner.reporting import row_limit
from actor_learner.support import counters, graph_call

# A call costs about as much as a few train steps, a recording graph a few percent per step: a quiet
# stretch shorter than this is cheaper inside the neighbouring recording call.
_SHORTEST_QUIET_STRETCH = 16


class Stretch(NamedTuple):
    """Consecutive train iterations that one graph call runs."""

    records: bool
    iterations: int


_ONE_QUIET = [Stretch(records=False, iterations=1)]


def plan_stretches(first_step: int, iterations: int, summary_interval: int) -> list[Stretch]:
    """Splits iterations into calls of the quiet and of the recording graph.

    A summary is due where `train_step % summary_interval == 0`. An agent may write summaries before
    it increments the train step or after, so the iteration that starts at step t can record if t or
    t + 1 is a multiple. Whether it does is decided in the recording graph by the step's value;
    the plan only has to keep every iteration that could record out of the quiet graph.

    Args:
      first_step: The train step before the first iteration; each iteration adds one.
      iterations: How many iterations to plan, at least 1.
      summary_interval: Steps between summaries, at least 1.

    Returns:
      Stretches that add up to `iterations`: one if no summary is due.
    """
    stretches: list[Stretch] = []

    def add(records: bool, count: int) -> None:
        if stretches and stretches[-1].records == records:
            count += stretches.pop().iterations
        stretches.append(Stretch(records, count))

    done = 0
    while done < iterations:
        offset = (first_step + done) % summary_interval
        quiet = min(0 if offset == 0 else summary_interval - 1 - offset, iterations - done)
        done += quiet
        recording = 0
        if done < iterations:
            recording = 1 if offset == 0 else 2
            if summary_interval - 2 < _SHORTEST_QUIET_STRETCH:
                recording = iterations - done  # Every later gap is too short to be worth a call.
            recording = min(recording, iterations - done)
        done += recording
        short = quiet < _SHORTEST_QUIET_STRETCH and (recording or stretches)
        if quiet:
            add(bool(short), quiet)
        if recording:
            add(True, recording)
    return stretches


class StretchPlanner:
    """Plans stretches for an agent of which it is not known how it counts train steps.

    After many of them summaries become fewer: see `row_limit`. Where the agent does not count by
    one they do not, since the graph then looks at every step.

    Args:
      summary_interval: Steps between summaries, at least 1.
    """

    def __init__(self, summary_interval: int):
        self._summary_interval = summary_interval
        self._dense = row_limit.row_limit()
        # None until the first iteration shows whether the agent adds one to the train step.
        self._steps_by_one: bool | None = None
        self._quiet = range(0)  # Steps whose single iteration is known to record nothing.

    def plan(self, first_step: int, iterations: int) -> list[Stretch]:
        """As `plan_stretches`, but sure to record what can be, however the agent counts."""
        if iterations == 1 and self._is_quiet(first_step):
            return _ONE_QUIET
        if self._steps_by_one is None:
            first = [Stretch(True, 1)]
            if iterations == 1:
                return first
            return first + plan_stretches(
                first_step + 1, iterations - 1, self._interval_at(first_step + 1)
            )
        if not self._steps_by_one:
            # Which iteration will meet a multiple is unknown: the graph has to look every time.
            return [Stretch(True, iterations)]
        return plan_stretches(first_step, iterations, self._interval_at(first_step))

    def _is_quiet(self, step: int) -> bool:
        """Whether a single iteration from `step` records nothing; most answers take no time."""
        if not self._steps_by_one:
            return False
        if step not in self._quiet:
            # Whatever the interval has become, only multiples of the first one can be due.
            multiple = (step // self._summary_interval + 1) * self._summary_interval
            due = step % self._interval_at(step) == 0
            self._quiet = range(0) if due else range(step, multiple - 1)
        return step in self._quiet

    def _interval_at(self, step: int) -> int:
        """A multiple of the interval: those between are left to the graph that records nothing."""
        if not self._summary_interval:
            return 0
        return self._summary_interval * max(1, -(-step // (self._dense * self._summary_interval)))

    def as_planned(self, stretch: Stretch, steps: int) -> bool:
        """Whether the plan still holds after `stretch` added `steps` steps; if not, make another.

        Once the agent has counted in another way, plans hold whatever it does.
        """
        if steps == stretch.iterations:
            self._steps_by_one = self._steps_by_one is not False
            return True
        held = self._steps_by_one is False
        self._steps_by_one = False
        return held


class Trained(NamedTuple):
    """What a call of a loop has done.

    Attributes:
      losses: Those of the last iteration, reduced.
      before: The train step before the first iteration,
      after: and after the last.
    """

    losses: Any
    before: int
    after: int


class TrainLoop:
    """Runs a train step k times in one call of a graph that holds one copy of it.

    The step is traced once per type of iterator, in the summary and strategy context of the first
    call; any number of iterations then runs without tracing again. `parallel_iterations` is an
    attribute of the graph: another value builds another loop around the same traced step. A single
    iteration has a graph of its own, since a loop around a small train step costs a fifth of it.
    """

    def __init__(
        self,
        step: Callable[[Any], Any],
        reduce: Callable[[Any], Any],
        train_step: tf.Variable,
        *,
        one_by_one: bool = False,
        as_numbers: bool = False,
    ):
        """Wraps a train step.

        Args:
          step: Takes an iterator, pulls one batch, trains, returns a nest of losses.
          reduce: Reduces the losses of the last iteration over replicas.
          train_step: Counts train steps.
          one_by_one: Pull a batch only when the train step before is complete. Else, if a step
            fails, the next batch may be under way: it is lost then, and the iterator with it.
          as_numbers: Give losses as NumPy scalars, not tensors: a bound call then makes one tensor
            for all of them and the train step.
        """
        self.trace_count = 0  # How often the train step was traced.
        self._step = step
        self._reduce = reduce
        self._train_step = train_step
        self._one_by_one = one_by_one
        self._as_numbers = as_numbers
        # AutoGraph stays on here because a caller's after-train function may rely on it.
        self._traced_step = tf.function(self._count_and_step)
        self._loop = tf.function(self._build_loop, autograph=False)
        # By parallel_iterations; None for a single iteration.
        self._bound: dict[int | None, Callable[..., Trained]] = {}
        self._bound_iterator: Any = None

    def trace(self, iterator: Any) -> None:
        """Traces the train step, which creates its variables, and takes nothing from `iterator`."""
        self._traced_step.get_concrete_function(iterator)

    def not_a_number(self, iterator: Any) -> Any:
        """Stands for the reduced losses of a step that gave none: NaN, or 0 for integers."""
        outputs = self._traced_step.get_concrete_function(iterator).structured_outputs
        return tf.nest.map_structure(
            lambda leaf: tf.constant(np.nan if leaf.dtype.is_floating else 0, leaf.dtype), outputs
        )

    def is_bound(self, iterations: int, iterator: Any, parallel_iterations: int) -> bool:
        """Whether such a `run` with `bind` only calls what is built: no context matters to it."""
        return (
            iterator is self._bound_iterator
            and (None if iterations == 1 else parallel_iterations) in self._bound
            and not tf.config.functions_run_eagerly()
        )

    def run(
        self, iterations: int, iterator: Any, parallel_iterations: int, *, bind: bool = False
    ) -> Trained:
        """Trains `iterations` times.

        Args:
          iterations: At least 1.
          iterator: Gives the batches.
          parallel_iterations: Passed to the graph's loop.
          bind: The iterator will be passed again and again: build it into the loop. This saves the
            matching of its structure in every call, which costs as much as a small train step.
        """
        eagerly = tf.config.functions_run_eagerly()
        if bind and not eagerly and isinstance(iterator, tf.data.Iterator):
            return self._call_bound(iterations, iterator, parallel_iterations)
        before = int(counters.read(self._train_step))
        if eagerly:
            for _ in range(iterations):
                losses = self._step(iterator)
            losses = self._reduce(losses)
        else:
            count = counters.constant(iterations, tf.int64)
            losses = self._loop(count, iterator, parallel_iterations)
        if self._as_numbers:
            losses = tf.nest.map_structure(lambda loss: loss.numpy(), losses)
        return Trained(losses, before, int(counters.read(self._train_step)))

    def _call_bound(self, iterations: int, iterator: Any, parallel_iterations: int) -> Trained:
        if iterator is not self._bound_iterator:
            self._bound.clear()
            self._bound_iterator = iterator
        single = iterations == 1
        key = None if single else parallel_iterations
        call = self._bound.get(key)
        if call is None:
            call = self._bound[key] = self._bind(iterator, key)
        return call() if single else call(counters.constant(iterations, tf.int64))

    def _bind(self, iterator: Any, parallel_iterations: int | None) -> Callable[..., Trained]:
        outcome = _NumbersOutcome() if self._as_numbers else _TensorsOutcome()

        def counted(train: Callable[[], Any]) -> Any:
            before = self._train_step.read_value()
            losses = train()
            return outcome.pack(losses, tf.stack([before, self._train_step.read_value()]))

        if parallel_iterations is None:
            fn = tf.function(
                lambda: counted(lambda: self._reduce(self._traced_step(iterator))), autograph=False
            )
            call = graph_call.GraphCall(fn.get_concrete_function())
            return lambda: outcome.unpack(call())
        fn = tf.function(
            lambda count: counted(lambda: self._build_loop(count, iterator, parallel_iterations)),
            autograph=False,
        )
        call = graph_call.GraphCall(fn.get_concrete_function(tf.TensorSpec([], tf.int64)))
        return lambda count: outcome.unpack(call(count))

    def _count_and_step(self, iterator: Any) -> Any:
        self.trace_count += 1
        return self._step(iterator)

    def _build_loop(self, iterations: tf.Tensor, iterator: Any, parallel_iterations: int) -> Any:
        # The shapes come from the traced step itself, so no iteration has to be unrolled for them.
        outputs = self._traced_step.get_concrete_function(iterator).outputs
        nests = []

        def body(count, *_):
            losses = self._traced_step(iterator)
            nests.append(losses)
            tensors = _tensors(losses)
            # All of them are outputs of one operation, the call, which is over when all is done.
            complete = [tensor.op for tensor in tensors[:1]] if self._one_by_one else []
            with tf.control_dependencies(complete):
                return (count + 1, *tensors)

        count = tf.constant(0, tf.int64)
        initial = [tf.zeros(_smallest(output.shape), output.dtype) for output in outputs]
        _, *final = tf.while_loop(
            cond=lambda count, *_: count < iterations,
            body=body,
            loop_vars=(count, *initial),
            shape_invariants=(count.shape, *[output.shape for output in outputs]),
            parallel_iterations=parallel_iterations,
        )
        values = iter(final)
        # Only replaces leaves: values of several replicas keep their type.
        flat = tf.nest.flatten(nests[-1], expand_composites=True)
        flat = [leaf if leaf is None else next(values) for leaf in flat]
        return self._reduce(tf.nest.pack_sequence_as(nests[-1], flat, expand_composites=True))


class _TensorsOutcome:
    """What a bound graph returns: the losses as they are."""

    def pack(self, losses: Any, steps: tf.Tensor) -> Any:
        return losses, steps

    def unpack(self, outputs: Any) -> Trained:
        losses, steps = outputs
        return Trained(losses, *np.asarray(steps).tolist())


class _NumbersOutcome:
    """What a bound graph returns: all in one vector, whose numbers float64 holds as they are."""

    def __init__(self) -> None:
        self._losses: Any = None  # The nest of them, in the graph.
        self._types: list[Callable[[float], Any]] = []

    def pack(self, losses: Any, steps: tf.Tensor) -> tf.Tensor:
        self._losses, scalars = losses, tf.nest.flatten(losses)
        self._types = [scalar.dtype.as_numpy_dtype for scalar in scalars]
        flat = [tf.cast(scalar, tf.float64) for scalar in scalars]
        return tf.concat([tf.cast(steps, tf.float64), tf.stack(flat)], axis=0)

    def unpack(self, outputs: tf.Tensor) -> Trained:
        before, after, *numbers = np.asarray(outputs).tolist()
        scalars = [kind(number) for kind, number in zip(self._types, numbers)]
        losses = tf.nest.pack_sequence_as(self._losses, scalars)
        return Trained(losses, int(before), int(after))


def _tensors(nest: Any) -> list[tf.Tensor]:
    return [leaf for leaf in tf.nest.flatten(nest, expand_composites=True) if leaf is not None]


def _smallest(shape: tf.TensorShape) -> list[int]:
    return [] if shape.rank is None else [size or 0 for size in shape.as_list()]

"""Writes the values of metrics as TensorBoard summaries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf
from absl import logging


def write(
    writer: tf.summary.SummaryWriter,
    name: str,
    train_step: tf.Variable,
    *,
    metrics: Sequence[Any],
    reference_metrics: Sequence[Any],
    image_metrics: Sequence[Any],
) -> None:
    """Writes values against the train step and each reference metric.

    Args:
      writer: Where to.
      name: Prefix of the tags.
      train_step: The step of summaries.
      metrics: With scalar results.
      reference_metrics: Those against which the others are plotted as well.
      image_metrics: With images as results, plotted against the train step alone.
    """
    with writer.as_default(), tf.summary.record_if(True):
        for metric in metrics:
            tag = os.path.join("Metrics/", name, metric.name)
            _write(tf.summary.scalar, metric, name=tag, step=train_step)
            for reference in reference_metrics:
                tag = os.path.join(name, f"Metrics/{metric.name}/{reference.name}")
                _write(tf.summary.scalar, metric, name=tag, step=reference.result())
        for metric in image_metrics:
            tag = os.path.join("Metrics/", name, metric.name)
            _write(tf.summary.image, metric, name=tag, step=train_step)


def _write(summary: Callable[..., Any], metric: Any, *, name: str, step: Any) -> None:
    """Writes one summary, or logs why not: a metric that has no number must not end a run."""
    try:
        summary(name=name, data=metric.result(), step=step)
    except ValueError as error:
        logging.error("No summary %r was written for %s: %s", name, metric, error)

"""Environments written in TensorFlow operations: many lanes, and whole unrolls, in one graph."""

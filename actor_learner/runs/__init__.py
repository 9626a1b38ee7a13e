"""The acting side and the learning side of an experiment, and what runs them together."""

"""The acting and learning sides of an experiment, and the code that runs them together."""

"""Outside worlds as batched TimeSteps."""

"""From sampled items to batches."""

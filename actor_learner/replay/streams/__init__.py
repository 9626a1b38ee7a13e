"""Sample streams: which items are written, and how they become batches."""

"""How far a run has come: its counters, statistics and lines of metrics."""

"""Learning: the graph train loop, its triggers, checkpoints and evaluation."""

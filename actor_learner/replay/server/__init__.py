"""The Reverb server: its tables, their state, its checkpoints."""

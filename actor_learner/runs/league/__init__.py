"""A run's league: who plays whom, and what comes of it."""

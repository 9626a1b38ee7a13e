"""Leagues: who has played whom, how strong that makes them, and whom to play next."""

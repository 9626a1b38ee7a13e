"""Evaluates a run's policies: rates them, keeps the best, and says whether training may end."""

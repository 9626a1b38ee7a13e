"""Names: how the jobs of a run find one another, on one machine or many."""

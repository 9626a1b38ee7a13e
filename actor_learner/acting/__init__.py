"""Actors: they step environments with a policy and hand every step to observers."""

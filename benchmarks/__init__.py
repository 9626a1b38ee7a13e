"""Measurements of ours beside the peer and the limit, in one run."""

"""Gin-configurable builders of the algorithms, one file each, over TF-Agents agents."""

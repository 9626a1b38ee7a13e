"""The processes of the system, each running its part of an experiment."""

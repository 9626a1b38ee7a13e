"""The wire: messages between the jobs of a run, checked on arrival and never executed."""

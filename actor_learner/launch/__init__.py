"""Starting jobs and keeping them running: on this machine, or on a Ray cluster."""

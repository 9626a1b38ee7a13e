"""Experience on disk, for training without its environment."""

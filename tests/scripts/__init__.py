"""Scripts written for TF-Agents' modules, which tests run with only their imports changed."""

"""Small games of ours for self-play; PettingZoo's turn-based protocol, without its package."""

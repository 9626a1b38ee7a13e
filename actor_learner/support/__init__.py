"""What every room uses and no reinforcement learning is in: errors, files, calls with deadlines."""

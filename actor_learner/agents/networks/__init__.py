"""The networks of our agents, and the layers that they consist of."""

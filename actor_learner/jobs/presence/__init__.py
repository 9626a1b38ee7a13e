"""How jobs are found: their names in the registry, leases, heartbeats, addresses and wires."""

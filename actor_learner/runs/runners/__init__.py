"""Who calls the two sides of a run: one thread in turns, two threads, or one thread per device."""

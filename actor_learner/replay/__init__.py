"""Replay: tables, the server that holds them, observers that write, buffers that read."""

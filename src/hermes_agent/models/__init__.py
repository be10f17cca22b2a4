"""Models: one protocol, a few adapters, and what stands between them and a turn."""

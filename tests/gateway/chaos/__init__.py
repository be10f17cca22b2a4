"""Chaos: the gateway is killed while all around it fails, and still answers every message once."""

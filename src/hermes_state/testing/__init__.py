"""The conformance suite that every store must pass."""

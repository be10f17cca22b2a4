"""The wire protocol between Hermes and its user interfaces: what both sides share, and nothing else."""

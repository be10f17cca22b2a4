"""Checkpoints: what a workspace held before and after a turn, kept so that its files can be restored."""

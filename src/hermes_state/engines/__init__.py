"""Engines run transactions."""

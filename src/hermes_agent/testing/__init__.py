"""Doubles that ship: a scripted model, a scripted HTTP server, a sink that remembers."""

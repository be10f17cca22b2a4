"""A small whole platform on this machine: the example for authors, and the subject of our own tests."""

"""Measurements of Hermes beside its bare limits; run with `python -m bench`, never shipped."""

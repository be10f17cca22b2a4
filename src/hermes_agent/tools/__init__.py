"""Tools: what a model may do, one module each."""

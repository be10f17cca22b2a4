"""The rules of the conformance suite, one module per kind of row."""

"""What proves a store: a conformance suite, a crash matrix and a power-loss simulation."""

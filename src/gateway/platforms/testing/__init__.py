"""The kit that ships: what every platform must do, doubles of platforms, and faults of networks."""

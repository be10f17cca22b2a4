"""One turn: its loop, its meter, its stop, its events, and the reply while it streams."""

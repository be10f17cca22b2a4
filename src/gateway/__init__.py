"""Chat platforms on one side, the agent on the other; every message accepted is answered once."""

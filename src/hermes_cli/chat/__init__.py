"""`hermes chat`: how a conversation looks and feels on a terminal, and how a program asks once."""

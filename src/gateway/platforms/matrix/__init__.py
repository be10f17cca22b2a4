"""Matrix: rooms on any homeserver, encrypted ones included."""

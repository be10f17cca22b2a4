"""Import conversations of another program without changing its files."""

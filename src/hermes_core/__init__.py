"""Values and rules that every other package may use; imports nothing of ours."""

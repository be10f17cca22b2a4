"""The crash matrix over whole turns: agents are killed anywhere, started again, and must recover."""

"""The HTTP API: the agent behind the requests that OpenAI's clients make."""

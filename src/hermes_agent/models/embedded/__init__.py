"""The embedded model: what runs in this process when there is no key and no server."""


def advice() -> str:
    """Explains what the embedded model is good for, and how to get a better one."""
    return (
        "The embedded model is small: good for short questions, one-step work on files, small code and "
        "short summaries; it is slow on long text and can be wrong, so check what it says.\n"
        "For real work set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENROUTER_API_KEY, start a local "
        "server such as Ollama, or use a bigger file: hermes model pull --gguf PATH."
    )

"""The embedded model: what runs in this process when there is no key and no server."""

from typing import TYPE_CHECKING

from hermes_core.paths import Home

if TYPE_CHECKING:
    from hermes_agent.models.base import Model


def installed(home: Home) -> list[str]:
    """Return the models that can be used now, the preferred one first."""
    if not home.models.is_dir():
        return []
    from hermes_agent.models.embedded import model_files  # noqa: PLC0415 -- hashing and more, rarely needed

    return model_files.installed(home)


def open_model(home: Home, name: str, window: int) -> "Model":
    """Open a model; it is loaded when it is first asked. Raises ModelMissingError."""
    from hermes_agent.models.embedded import model  # noqa: PLC0415 -- brings the engine

    return model.open_model(home, name, window)


def advice() -> str:
    """Return what the embedded model is good for, and how to get a better one."""
    return (
        "The embedded model is small: good for short questions, one-step work on files, small code and "
        "short summaries; it is slow on long text and can be wrong, so check what it says.\n"
        "For real work set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENROUTER_API_KEY, start a local "
        "server such as Ollama, or use a bigger file: hermes model pull --gguf PATH."
    )

"""The official clients of OpenAI and Anthropic, imported at their first use.

Each process of the tests collects all of them, and most run no test that needs a client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["anthropic", "openai"]


class _Package:
    """A package that is imported when one of its public names is used; pytest asks for private ones."""

    def __init__(self, name: str) -> None:
        self._package = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self._package), name)


if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = _Package("anthropic"), _Package("openai")

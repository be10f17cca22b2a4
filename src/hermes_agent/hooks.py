"""Hooks as the agent calls them; the module `hermes_cli.plugins` fits, and so does a test's double."""

from typing import Any, Protocol


class Hooks(Protocol):
    """Calls every listener of a hook and returns what they answered."""

    def has_hook(self, name: str, /) -> bool:
        """Tell whether any plugin listens, for callers whose arguments are costly to make."""
        ...

    def invoke_hook(self, name: str, /, **kwargs: Any) -> list[Any]: ...  # noqa: ANN401 -- each hook's own


class NoHooks:
    """Nobody listens."""

    def has_hook(self, name: str, /) -> bool:
        del name
        return False

    def invoke_hook(self, name: str, /, **kwargs: Any) -> list[Any]:  # noqa: ANN401 -- as above
        del name, kwargs
        return []

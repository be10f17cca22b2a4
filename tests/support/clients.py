"""The official clients of OpenAI and Anthropic, loaded at their first use.

Each process of the tests collects all of them, and most run no test that needs a client.
"""

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["anthropic", "openai"]


def _lazy(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = _lazy("anthropic"), _lazy("openai")

"""Ask a model one tiny question, to find out whether it can answer."""

import time

import msgspec

from hermes_agent.models.base import Model, Request
from hermes_agent.turn.events import Event
from hermes_agent.turn.stop import Stop
from hermes_core.settings import ModelSettings

_QUESTION = "Reply with the one word: ready"
_MAX_OUTPUT = 64
"""Tokens; a model that thinks aloud may use them all for that, which is an answer too."""
_TIMEOUT_S = 120.0
"""A local server may have to load the model first."""


def for_trial(settings: ModelSettings) -> ModelSettings:
    """Return the settings without retries and fallbacks: the person waits for the answer."""
    timeout_s = min(settings.timeout_s, _TIMEOUT_S)
    return msgspec.structs.replace(settings, retries=0, fallbacks=[], timeout_s=timeout_s)


def ask(model: Model) -> float:
    """Ask and return the seconds that the answer took. Raises ModelError when there is none."""
    request = Request("", (), [{"role": "user", "content": _QUESTION}], _MAX_OUTPUT)
    began = time.monotonic()
    model.ask(request, Stop(), _ignore)
    return time.monotonic() - began


def _ignore(event: Event) -> None:
    """The person sees the outcome alone."""

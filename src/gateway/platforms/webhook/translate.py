"""From the JSON of a delivery to the message that the gateway takes in. No I/O."""

import hashlib
import re
from typing import Any, cast

import msgspec

from gateway.config import Platform
from gateway.platforms.base import MessageEvent
from gateway.platforms.refusal import RefusedRequest
from gateway.platforms.webhook.manifest import HookSettings
from gateway.source import SessionSource

_PLACE = re.compile(r"\{([\w-]+(?:\.[\w-]+)*)\}")
_ODD = re.compile(r"[^\w@+:=~#-]+", re.ASCII)
_LONGEST = 80


def payload(body: bytes) -> dict[str, Any] | list[Any]:
    """The JSON of a delivery: an object or a list; raises RefusedRequest."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any] | list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"The body must be a JSON object or list, as application/json: {error}."
        raise RefusedRequest(400, text, code="invalid_json") from error


def event(name: str, hook: HookSettings, delivery: str, said: Any, kind: str = "") -> MessageEvent:  # noqa: ANN401 -- JSON
    """The message of a delivery. `kind` is what its sender calls the event."""
    together = render(hook.conversation, said).strip()
    return MessageEvent(
        text=_text(name, hook, said, kind),
        source=SessionSource(
            Platform.WEBHOOK,
            chat_id=f"{name}/{_safe(together) if together else delivery}",
            chat_name=name,
            user_id=name,
            user_name=name,
            role_authorized=True,
        ),
        message_id=delivery,
        named_within=f"deliveries of {name}",
        is_mention=True,
        can_be_asked=False,
        options={} if together else {"is_single": True},
    )


def hook_of(chat_id: str) -> str:
    """The hook that a chat belongs to."""
    return chat_id.partition("/")[0]


def render(template: str, said: Any) -> str:  # noqa: ANN401 -- JSON
    """A template with its places filled; what the JSON does not have is left empty."""
    return _PLACE.sub(lambda found: _written(_at(said, found[1])), template)


def _text(name: str, hook: HookSettings, said: Any, kind: str) -> str:  # noqa: ANN401 -- JSON
    title = f"Webhook {name}{f', event {kind}' if kind else ''}:"
    text = render(hook.prompt, said) if hook.prompt else f"{title}\n{_written(said)}"
    # What others write must not become a command of ours.
    return f"{title}\n{text}" if text.lstrip().startswith("/") or not text.strip() else text


def _at(said: Any, path: str) -> Any:  # noqa: ANN401 -- JSON
    for step in path.split("."):
        if isinstance(said, dict):
            said = cast("dict[str, Any]", said).get(step)
        elif isinstance(said, list) and step.isdecimal() and int(step) < len(said):  # pyright: ignore[reportUnknownArgumentType] -- JSON
            said = cast("list[Any]", said)[int(step)]
        else:
            return None
    return said


def _written(value: Any) -> str:  # noqa: ANN401 -- JSON
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _safe(text: str) -> str:
    """A name for what belongs together; two that differ stay different when letters are lost."""
    clean = _ODD.sub("_", text)[:_LONGEST]
    return clean if clean == text else f"{clean}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"

"""Translate the JSON of a delivery to the message that the gateway accepts. No I/O."""

import hashlib
import re
from typing import Any, cast

import msgspec

from gateway.config import Platform
from gateway.platforms.base import MessageEvent
from gateway.platforms.refusal import RefusedRequest
from gateway.platforms.webhook.manifest import HookSettings
from gateway.source import SessionSource

_FIELD = re.compile(r"\{([\w-]+(?:\.[\w-]+)*)\}")
_UNSAFE = re.compile(r"[^\w@+:=~#-]+", re.ASCII)
_MAX_NAME_LENGTH = 80


def payload(body: bytes) -> dict[str, Any] | list[Any]:
    """Parse the JSON of a delivery, an object or a list; raises RefusedRequest."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any] | list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"The request body is not a JSON object or list: {error}."
        raise RefusedRequest(400, text, code="invalid_json") from error


def event(name: str, hook: HookSettings, delivery: str, value: Any, kind: str = "") -> MessageEvent:  # noqa: ANN401 -- JSON
    """Build the message of a delivery. `kind` is the name of the event at its sender."""
    group = render(hook.conversation, value).strip()
    return MessageEvent(
        text=_text(name, hook, value, kind),
        source=SessionSource(
            Platform.WEBHOOK,
            chat_id=f"{name}/{_safe(group) if group else delivery}",
            chat_name=name,
            user_id=name,
            user_name=name,
            role_authorized=True,
        ),
        message_id=delivery,
        named_within=f"deliveries of {name}",
        is_mention=True,
        can_be_asked=False,
        options={} if group else {"is_single": True},
    )


def hook_of(chat_id: str) -> str:
    """Return the hook that a chat belongs to."""
    return chat_id.partition("/")[0]


def render(template: str, value: Any) -> str:  # noqa: ANN401 -- JSON
    """Fill the fields of a template; a field that the JSON does not have is empty."""
    return _FIELD.sub(lambda found: _as_text(_at(value, found[1])), template)


def _text(name: str, hook: HookSettings, value: Any, kind: str) -> str:  # noqa: ANN401 -- JSON
    title = f"Webhook {name}{f', event {kind}' if kind else ''}:"
    text = render(hook.prompt, value) if hook.prompt else f"{title}\n{_as_text(value)}"
    # What others write must not become a command of ours.
    return f"{title}\n{text}" if text.lstrip().startswith("/") or not text.strip() else text


def _at(value: Any, path: str) -> Any:  # noqa: ANN401 -- JSON
    for step in path.split("."):
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):  # pyright: ignore[reportUnknownArgumentType] -- JSON
            value = cast("list[Any]", value)[int(step)]
        else:
            return None
    return value


def _as_text(value: Any) -> str:  # noqa: ANN401 -- JSON
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _safe(text: str) -> str:
    """Return a name that a chat id can hold; two that differ stay different."""
    clean = _UNSAFE.sub("_", text)[:_MAX_NAME_LENGTH]
    return clean if clean == text else f"{clean}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"

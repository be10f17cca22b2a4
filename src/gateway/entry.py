"""A route: the conversation that a chat is in now, and what the gateway knows about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from gateway.config import Platform
from gateway.source import SessionSource

_UNSAFE_ID = re.compile(r"\.\.|[/\\]|^[A-Za-z]:")
_UNSAFE_KEY = re.compile(r"\.\.|^[/\\]|^[A-Za-z]:[/\\]")


@dataclass(slots=True)
class SessionEntry:
    """The conversation of one session key. Times are local and naive, as in the file."""

    session_key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | None = None
    chat_type: str = "dm"
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    expiry_finalized: bool = False
    """Whether the expired conversation was closed."""
    suspended: bool = False
    """Whether the next message starts a new conversation: hermes-agent has marked it so."""
    model_override: dict[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if isinstance(value, datetime):
                value = value.isoformat()
            elif isinstance(value, Platform):
                value = value.value
            elif isinstance(value, SessionSource):
                value = value.to_dict()
            elif value is None and name in ("origin", "model_override"):
                continue
            values[name] = value
        return values

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SessionEntry":
        """Read a stored route; raises ValueError and KeyError."""
        values = {name: data[name] for name in _NAMES if name in data}
        if _UNSAFE_ID.search(str(data["session_id"])) or _UNSAFE_KEY.search(data["session_key"]):
            raise ValueError(f"The route {data['session_key']!r} does not name a session.")
        for name in ("created_at", "updated_at"):
            values[name] = _moment(data[name])
        values["platform"] = _platform(data.get("platform"))
        values["origin"] = SessionSource.from_dict(data["origin"]) if data.get("origin") else None
        values["expiry_finalized"] = bool(data.get("expiry_finalized", data.get("memory_flushed")))
        values["model_override"] = _without_secrets(data.get("model_override"))
        return cls(**values)


_NAMES = tuple(field.name for field in fields(SessionEntry))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone().replace(tzinfo=None) if moment.tzinfo else moment


def _platform(name: object) -> Platform | None:
    try:
        return Platform(name) if name else None
    except ValueError:
        return None  # a platform that is not here any more


def _without_secrets(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    fields = {name: value[name] for name in ("model", "provider", "base_url") if name in value}  # pyright: ignore[reportUnknownVariableType]
    return {str(name): str(field) for name, field in fields.items()} or None  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

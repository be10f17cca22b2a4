"""SessionSource: the chat and the sender of a message, and the session key of its conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.config import Platform

_ALWAYS = ("chat_id", "chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_WHEN_SET = (
    "user_id_alt",
    "chat_id_alt",
    "scope_id",
    "parent_chat_id",
    "message_id",
    "profile",
    "is_unverified",
)


_SESSION = "session:"
"""Prefix of the id of a chat that is one session, as programs name it."""


@dataclass(slots=True)
class SessionSource:
    """A chat, and the person who writes in it."""

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    """dm, group, channel, thread or forum."""
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    """The stable id of a person whose visible id may change."""
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    """The server, workspace or guild that the chat is in."""
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    """Whether the platform itself vouches for the sender."""
    profile: str | None = None
    is_unverified: bool = False
    """Whether the sender could be forged; a forgeable sender is a guest."""

    def __post_init__(self) -> None:
        self.scope_id = self.guild_id = self.scope_id or self.guild_id

    @property
    def person(self) -> str | None:
        """The stable id of the person."""
        return self.user_id_alt or self.user_id

    @property
    def is_session(self) -> bool:
        """Return whether the chat is one session, which never changes."""
        return self.chat_id.startswith(_SESSION)

    @property
    def session_id(self) -> str:
        """The session that the chat is; empty for other chats."""
        return self.chat_id.removeprefix(_SESSION) if self.is_session else ""

    def of_session(self, session_id: str) -> "SessionSource":
        """Return the same person in the chat that is this session."""
        return replace(self, chat_id=f"{_SESSION}{session_id}")

    @property
    def is_group(self) -> bool:
        return self.chat_type != "dm"

    @property
    def sender(self) -> str:
        """The sender and the chat, for people."""
        name = self.user_name or self.user_id or "somebody"
        where = f" in {self.chat_name or self.chat_id}" if self.is_group else ""
        return f"{name}{where} ({self.platform.value})"

    @property
    def description(self) -> str:
        """A description of the chat for people."""
        name = self.chat_name or self.user_name or self.chat_id
        kind = "direct chat with" if not self.is_group else f"{self.chat_type}"
        thread = f", thread {self.thread_id}" if self.thread_id else ""
        return f"{self.platform.value}: {kind} {name}{thread}"

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"platform": self.platform.value}
        fields |= {name: getattr(self, name) for name in _ALWAYS}
        fields |= {name: getattr(self, name) for name in _WHEN_SET if getattr(self, name)}
        if self.scope_id:
            fields["guild_id"] = self.scope_id
        return fields

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SessionSource":
        """Read what `to_dict` wrote; raises KeyError.

        A platform may be switched off: its messages are still answered.
        """
        fields = {name: data[name] for name in (*_ALWAYS, *_WHEN_SET) if data.get(name) is not None}
        fields["chat_id"] = str(data["chat_id"])
        fields.setdefault("scope_id", data.get("guild_id"))
        return cls(platform=Platform.register(str(data["platform"])), **fields)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """Return the session key of a message."""
    space = profile if profile and profile != "default" else "main"
    parts = ["agent", space, source.platform.value]
    if not source.is_group:
        where = source.chat_id or source.person
        parts += ["dm", *filter(None, (where, source.thread_id))]
        return ":".join(parts)
    parts += filter(None, (source.chat_type, source.chat_id, source.thread_id))
    is_own = group_sessions_per_user and (thread_sessions_per_user or not source.thread_id)
    if is_own and source.person:
        parts.append(source.person)
    return ":".join(parts)


def fields_of(
    source: SessionSource, *, group_sessions_per_user: bool, thread_sessions_per_user: bool
) -> dict[str, Any]:
    """Return the owner fields of a chat's session; one that a group shares has no owner."""
    is_shared = is_shared_multi_user_session(
        source,
        group_sessions_per_user=group_sessions_per_user,
        thread_sessions_per_user=thread_sessions_per_user,
    )
    fields = {
        "user_id": None if is_shared else source.person,
        "chat_id": source.chat_id,
        "chat_type": source.chat_type,
        "thread_id": source.thread_id,
    }
    return {name: value for name, value in fields.items() if value is not None}


def is_shared_multi_user_session(
    source: SessionSource, *, group_sessions_per_user: bool, thread_sessions_per_user: bool
) -> bool:
    """Return whether the conversation of a chat has several people."""
    if not source.is_group:
        return False
    if source.thread_id:
        return not (group_sessions_per_user and thread_sessions_per_user)
    return not group_sessions_per_user

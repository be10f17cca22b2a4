"""Where a message comes from, and the key of the conversation that it belongs to."""

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
)


_SESSION = "session:"
"""What the id of a chat begins with that is a session, as programs name one."""


@dataclass(slots=True)
class SessionSource:
    """A chat, and who speaks in it."""

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
    """The stable id of somebody whose visible one may change."""
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

    def __post_init__(self) -> None:
        self.scope_id = self.guild_id = self.scope_id or self.guild_id

    @property
    def person(self) -> str | None:
        """Who speaks, by the id that stays."""
        return self.user_id_alt or self.user_id

    @property
    def is_session(self) -> bool:
        """Whether the chat is one session, and so never in another one."""
        return self.chat_id.startswith(_SESSION)

    @property
    def session_id(self) -> str:
        """The session that the chat is; empty when it is none."""
        return self.chat_id.removeprefix(_SESSION) if self.is_session else ""

    def of_session(self, session_id: str) -> "SessionSource":
        """The same person in the chat that is this session."""
        return replace(self, chat_id=f"{_SESSION}{session_id}")

    @property
    def is_group(self) -> bool:
        return self.chat_type != "dm"

    @property
    def description(self) -> str:
        """The chat in words."""
        name = self.chat_name or self.user_name or self.chat_id
        kind = "direct chat with" if not self.is_group else f"{self.chat_type}"
        thread = f", thread {self.thread_id}" if self.thread_id else ""
        return f"{self.platform.value}: {kind} {name}{thread}"

    def to_dict(self) -> dict[str, Any]:
        said: dict[str, Any] = {"platform": self.platform.value}
        said |= {name: getattr(self, name) for name in _ALWAYS}
        said |= {name: getattr(self, name) for name in _WHEN_SET if getattr(self, name)}
        if self.scope_id:
            said["guild_id"] = self.scope_id
        return said

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SessionSource":
        """Read what `to_dict` wrote; raises KeyError.

        A platform that is switched off is one all the same: what came from it is still to be answered.
        """
        known = {name: data[name] for name in (*_ALWAYS, *_WHEN_SET) if data.get(name) is not None}
        known["chat_id"] = str(data["chat_id"])
        known.setdefault("scope_id", data.get("guild_id"))
        return cls(platform=Platform.register(str(data["platform"])), **known)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """The key of the conversation that a message from there belongs to."""
    space = profile if profile and profile != "default" else "main"
    parts = ["agent", space, source.platform.value]
    if not source.is_group:
        where = source.chat_id or source.person
        parts += ["dm", *(one for one in (where, source.thread_id) if one)]
        return ":".join(parts)
    parts += [one for one in (source.chat_type, source.chat_id, source.thread_id) if one]
    is_own = group_sessions_per_user and (thread_sessions_per_user or not source.thread_id)
    if is_own and source.person:
        parts.append(source.person)
    return ":".join(parts)


def fields_of(
    source: SessionSource, *, group_sessions_per_user: bool, thread_sessions_per_user: bool
) -> dict[str, Any]:
    """What the session of a chat says about whose it is; one that a group shares is nobody's."""
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
    """Whether several people speak in the conversation that the source belongs to."""
    if not source.is_group:
        return False
    if source.thread_id:
        return not (group_sessions_per_user and thread_sessions_per_user)
    return not group_sessions_per_user

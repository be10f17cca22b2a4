"""Access: the roles of people, and their permissions.

A person must be named in the settings, let in by a pairing code, or vouched for by their platform.
Nothing is cached, so that letting somebody in or out takes effect at once.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from gateway.source import SessionSource, fields_of
from hermes_agent.permissions import Permissions
from hermes_core.errors import ConfigError
from hermes_core.settings import GatewaySettings, RoleSettings, Settings
from hermes_core.text import similar
from hermes_state.ledger import people as people_ledger
from hermes_state.store import Store
from hermes_state.values import Role, Scope, TaintSource

EVERYBODY = "*"
ALL_TOOLS = "*"
_RANKS: tuple[Role, ...] = ("guest", "member", "owner")


class Limits(NamedTuple):
    """The limits of a role."""

    tools: frozenset[str] | None
    """None: all."""
    usd_per_day: float
    """0: no limit."""


class Access:
    """Resolves roles and permissions. May be used from several threads."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        trusted: Collection[str] = (),
        carriers: Collection[str] = (),
    ) -> None:
        """`trusted` are the platforms behind a token (`needs_pairing` is false): who has it is owner.

        `carriers` are those whose messages strangers write in part (`carries_outside_text`).
        """
        if any(EVERYBODY in ids for ids in settings.gateway.owners.values()):
            raise ConfigError(
                "gateway.owners has '*': not everybody can be an owner.",
                fix="Name the user ids of the owners.",
            )
        self._store = store
        self._settings = settings
        self._trusted = frozenset(trusted)
        self._carriers = frozenset(carriers)

    def role_of(self, source: SessionSource) -> Role | None:
        """Return the role of a person; None when they may not write to the agent."""
        platform, ids = source.platform.value, _ids(source)
        is_trusted = platform in self._trusted
        if not ids:
            return "owner" if is_trusted and not source.is_bot else None
        found = self._named(platform, ids)
        if not found and not source.is_bot:
            found = self._vouched(source, is_trusted=is_trusted)
        role = max(found, key=_RANKS.index, default=None)
        return "guest" if role is not None and source.is_unverified else role

    def may_invite(self, source: SessionSource) -> bool:
        """Return whether to join a chat when this person asks us to: see `Ingress.may_invite`."""
        return self.role_of(source) is not None or not self._admits_anybody(source.platform.value)

    def _admits_anybody(self, platform: str) -> bool:
        """Return whether somebody may write on a platform."""
        gateway = self._settings.gateway
        return bool(
            gateway.owners.get(platform)
            or gateway.allow.get(platform)
            or any(each.platform == platform for each in self._store.read(people_ledger.list_all))
        )

    def _named(self, platform: str, ids: Collection[str]) -> list[Role]:
        """Return the roles that a person is given by name."""
        gateway = self._settings.gateway
        if not set(ids).isdisjoint(gateway.owners.get(platform, ())):
            return ["owner"]  # the highest role, whatever the store says
        found: list[Role] = []
        if not set(ids).isdisjoint(gateway.allow.get(platform, ())):
            found.append("member")
        people = (self._store.read(people_ledger.find, platform, user_id) for user_id in ids)
        return found + [person.role for person in people if person is not None]

    def _vouched(self, source: SessionSource, *, is_trusted: bool) -> list[Role]:
        """Return the roles that everybody has, or that the platform vouches for."""
        if is_trusted:
            return ["owner"]
        anybody = EVERYBODY in self._settings.gateway.allow.get(source.platform.value, ())
        return ["member"] if anybody or source.role_authorized else []

    def limits_of(self, role: Role) -> Limits:
        """Return the limits of a role."""
        roles = self._settings.roles
        tools, usd = {
            "owner": (roles.owner_tools, roles.owner_usd_per_day),
            "member": (roles.member_tools, roles.member_usd_per_day),
            "guest": (roles.guest_tools, roles.guest_usd_per_day),
        }[role]
        return Limits(None if ALL_TOOLS in tools else frozenset(tools), usd)

    def permissions_of(self, source: SessionSource) -> Permissions:
        """Return the permissions of a person in a chat.

        A person without a role is a guest: a message that was accepted before is still answered.
        """
        role = self.role_of(source) or "guest"
        limits = self.limits_of(role)
        platform = source.platform.value
        return Permissions(
            person=f"{platform}:{source.person}" if source.person else platform,
            role=role,
            scope=self.scope_of(source, role),
            is_private=not source.is_group,
            tools=limits.tools,
            usd_per_day=limits.usd_per_day,
        )

    def taint_of(self, source: SessionSource, *, quotes_others: bool) -> list[TaintSource]:
        """Return the taint that a message brings: what others than owners write is outside text."""
        is_owners = self.role_of(source) == "owner" and not quotes_others
        if is_owners and source.platform.value not in self._carriers:
            return []
        return [TaintSource("outside", f"a message of {source.sender}")]

    def scope_of(self, source: SessionSource, role: Role) -> Scope:
        """Return the conversations that a person may see from a chat.

        In a direct chat: their own, and for an owner those of the terminal. In a group: those of the
        same group, which everybody in it can read.
        """
        platform = source.platform.value
        if source.is_group or not (source.person or platform in self._trusted):
            owner = self.fields_of(source).get("user_id")
            return Scope(platform, owner, source.chat_id, source.thread_id, source.is_group)
        return Scope(platform, source.person, with_local=role == "owner")

    def fields_of(self, source: SessionSource) -> dict[str, Any]:
        """Return the owner fields of a chat's session; one that a group shares has no owner."""
        gateway = self._settings.gateway
        return fields_of(
            source,
            group_sessions_per_user=gateway.group_sessions_per_user,
            thread_sessions_per_user=gateway.thread_sessions_per_user,
        )


def may_answer(person: Permissions, asker: Permissions) -> bool:
    """Return whether a person may answer a question of a turn that `asker` started.

    An owner may, and anybody with the same permissions. The turn keeps the permissions of its asker.
    """
    return person.is_owner or are_alike(person, asker)


def are_alike(first: Permissions, second: Permissions) -> bool:
    """Return whether two people may steer each other's turns.

    They need the same permissions, and no spending limit that one would use up for the other.
    """
    rights = [(who.role, who.tools, who.scope, who.usd_per_day) for who in (first, second)]
    return rights[0] == rights[1] and (first.person == second.person or not first.usd_per_day)


def unknown_platforms(settings: GatewaySettings, platforms: Collection[str]) -> list[str]:
    """Return the settings that name people of unknown platforms.

    A platform may be that of a disabled plugin; a misspelled one raises ConfigError.
    """
    unknown: list[str] = []
    for setting, named in (("owners", settings.owners), ("allow", settings.allow)):
        for name in sorted(named.keys() - set(platforms)):
            near = similar(name, platforms)
            if near:
                raise ConfigError(
                    f"gateway.{setting} names {name!r}, which is not a platform.",
                    fix=f"Did you mean {near[0]}? Known platforms: {', '.join(sorted(platforms))}.",
                )
            unknown.append(f"gateway.{setting} names {name!r}")
    return unknown


def unknown_tools(settings: RoleSettings, tools: Collection[str]) -> list[str]:
    """Return the settings that give a role a tool that does not exist."""
    by_setting = {
        "owner_tools": settings.owner_tools,
        "member_tools": settings.member_tools,
        "guest_tools": settings.guest_tools,
    }
    return [
        f"roles.{setting} has {name!r}"
        for setting, names in by_setting.items()
        for name in names
        if name != ALL_TOOLS and name not in tools
    ]


def _ids(source: SessionSource) -> list[str]:
    """Return the ids of a person; the stable one comes first."""
    return list(dict.fromkeys(filter(None, (source.user_id_alt, source.user_id))))

"""Access: who may speak to the agent, as what, and what follows from it.

Nobody may who is not named: in the settings, among the people who were let in, or by a platform that
vouches for its users. Nothing is remembered here, so that letting somebody in or out counts at once.
"""

import difflib
from collections.abc import Collection
from typing import Any, NamedTuple

from gateway.source import SessionSource, fields_of
from hermes_agent.permissions import Permissions
from hermes_core.errors import ConfigError
from hermes_core.settings import GatewaySettings, RoleSettings, Settings
from hermes_state.ledger import people as people_ledger
from hermes_state.store import Store
from hermes_state.values import Role, Scope

EVERYBODY = "*"
ALL_TOOLS = "*"
_RANKS: tuple[Role, ...] = ("guest", "member", "owner")


class Limits(NamedTuple):
    """What a role may use and spend."""

    tools: frozenset[str] | None
    """None: all."""
    usd_per_day: float
    """0: no limit."""


class Access:
    """Decides about everybody who writes; may be used from several threads."""

    def __init__(self, store: Store, settings: Settings, trusted: Collection[str] = ()) -> None:
        """`trusted` are the platforms behind a token (`needs_pairing` is false): who has it is owner."""
        if any(EVERYBODY in ids for ids in settings.gateway.owners.values()):
            raise ConfigError(
                "gateway.owners has '*': not everybody can be an owner.",
                fix="Name the user ids of the owners.",
            )
        self._store = store
        self._settings = settings
        self._trusted = frozenset(trusted)

    def role_of(self, source: SessionSource) -> Role | None:
        """As what somebody may speak; None: they may not."""
        platform, ids = source.platform.value, _ids(source)
        is_trusted = platform in self._trusted
        if not ids:
            return "owner" if is_trusted and not source.is_bot else None
        found = self._named(platform, ids)
        if not found and not source.is_bot:
            found = self._vouched(source, is_trusted=is_trusted)
        return max(found, key=_RANKS.index, default=None)

    def _named(self, platform: str, ids: Collection[str]) -> list[Role]:
        """What is said about somebody by name."""
        gateway = self._settings.gateway
        if not set(ids).isdisjoint(gateway.owners.get(platform, ())):
            return ["owner"]  # which is the most, whatever the store says
        found: list[Role] = []
        if not set(ids).isdisjoint(gateway.allow.get(platform, ())):
            found.append("member")
        people = (self._store.read(people_ledger.find, platform, one) for one in ids)
        return found + [person.role for person in people if person is not None]

    def _vouched(self, source: SessionSource, *, is_trusted: bool) -> list[Role]:
        """What is said about everybody, or by the platform."""
        if is_trusted:
            return ["owner"]
        anybody = EVERYBODY in self._settings.gateway.allow.get(source.platform.value, ())
        return ["member"] if anybody or source.role_authorized else []

    def limits_of(self, role: Role) -> Limits:
        """What a role may use and spend."""
        roles = self._settings.roles
        tools, usd = {
            "owner": (roles.owner_tools, roles.owner_usd_per_day),
            "member": (roles.member_tools, roles.member_usd_per_day),
            "guest": (roles.guest_tools, roles.guest_usd_per_day),
        }[role]
        return Limits(None if ALL_TOOLS in tools else frozenset(tools), usd)

    def permissions_of(self, source: SessionSource) -> Permissions:
        """What somebody may see, use, spend and allow there.

        Who may not speak (any more) is a guest: a message that was accepted is still to be answered.
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

    def scope_of(self, source: SessionSource, role: Role) -> Scope:
        """The conversations that may be seen from there: in a direct chat the person's own, and for an
        owner the terminal's; in a group those of the same place, which all in it can read, and had when
        it was a group.
        """
        platform = source.platform.value
        if source.is_group or not (source.person or platform in self._trusted):
            owner = self.fields_of(source).get("user_id")
            return Scope(platform, owner, source.chat_id, source.thread_id, source.is_group)
        return Scope(platform, source.person, with_local=role == "owner")

    def fields_of(self, source: SessionSource) -> dict[str, Any]:
        """What the session of a chat says about whose it is; one that a group shares is nobody's."""
        gateway = self._settings.gateway
        return fields_of(
            source,
            group_sessions_per_user=gateway.group_sessions_per_user,
            thread_sessions_per_user=gateway.thread_sessions_per_user,
        )


def may_answer(theirs: Permissions, asker: Permissions) -> bool:
    """Whether somebody may tell a turn what it wants to know: its own person, who may do the same as
    they, and an owner, whose words it takes with the rights of its own person.
    """
    return theirs.is_owner or are_alike(theirs, asker)


def are_alike(one: Permissions, other: Permissions) -> bool:
    """Whether two people may speak into each other's turns: they may use and see the same there, and
    what one asks for is not paid from a limit that the other has for themselves.
    """
    rights = [(who.role, who.tools, who.scope, who.usd_per_day) for who in (one, other)]
    return rights[0] == rights[1] and (one.person == other.person or not one.usd_per_day)


def unknown_platforms(settings: GatewaySettings, platforms: Collection[str]) -> list[str]:
    """The platforms that are named for their people and are not there, each with its setting.

    One may be that of a plugin that is off; a name that is nearly one of ours raises ConfigError.
    """
    unknown: list[str] = []
    for setting, named in (("owners", settings.owners), ("allow", settings.allow)):
        for name in sorted(named.keys() - set(platforms)):
            near = difflib.get_close_matches(name, platforms, n=1)
            if near:
                raise ConfigError(
                    f"gateway.{setting} names {name!r}, which is no platform.",
                    fix=f"Do you mean {near[0]}? Known are {', '.join(sorted(platforms))}.",
                )
            unknown.append(f"gateway.{setting} names {name!r}")
    return unknown


def unknown_tools(settings: RoleSettings, tools: Collection[str]) -> list[str]:
    """The tools that a role is given and nobody has, each with its setting."""
    given = {
        "owner_tools": settings.owner_tools,
        "member_tools": settings.member_tools,
        "guest_tools": settings.guest_tools,
    }
    return [
        f"roles.{setting} has {name!r}"
        for setting, names in given.items()
        for name in names
        if name != ALL_TOOLS and name not in tools
    ]


def _ids(source: SessionSource) -> list[str]:
    """The ids that somebody is known by; the one that stays comes first."""
    return list(dict.fromkeys(one for one in (source.user_id_alt, source.user_id) if one))

"""Connections: the adapters of the gateway's platforms, each kept connected by a supervisor."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from gateway.chat_migrations import ChatMigrations
from gateway.locks import AccountLock
from gateway.platforms import registry
from gateway.platforms.base import Abilities, BasePlatformAdapter, Ingress, Manifest
from gateway.supervision import Supervisor
from hermes_core.paths import Home
from hermes_core.settings import GatewaySettings


class Connections:
    """The platforms of one gateway."""

    def __init__(
        self,
        home: Home,
        settings: GatewaySettings,
        manifests: Sequence[Manifest],
        migrations: ChatMigrations,
    ) -> None:
        self.supervisors: list[Supervisor] = []
        """One per platform, once the adapters are made."""
        self._home = home
        self._settings = settings
        self._manifests = manifests
        self._migrations = migrations
        self._abilities: dict[str, Abilities] = {}
        self._forwarding: dict[str, BasePlatformAdapter] = {}
        self._locks: dict[str, AccountLock] = {}

    def prepare(
        self,
        ingress: Ingress,
        on_connected: Callable[[str, BasePlatformAdapter], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """Make the adapters, so that their abilities are known before anything is sent to them.

        Raises ConfigError.
        """
        for manifest in self._manifests:
            table = self._settings.platforms.get(manifest.name, {})
            own = {name: value for name, value in table.items() if name != "enabled"}
            make = partial(self._make, manifest, registry.settings_of(manifest, own))
            self.supervisors.append(Supervisor(manifest, make, ingress, on_connected, on_change))
        for supervisor in self.supervisors:
            supervisor.prepare()

    def _make(self, manifest: Manifest, values: Any) -> BasePlatformAdapter:  # noqa: ANN401 -- the platform's own
        lock = self._locks.get(manifest.name)
        if lock is None:
            lock = AccountLock(manifest.name, registry.account_of(manifest, values))
            self._locks[manifest.name] = lock
        lock.take()
        adapter = registry.make(manifest, values, self._home)
        adapter.mark = lock.mark
        self._abilities[manifest.name] = adapter.abilities
        self._forwarding[manifest.name] = self._migrations.forwarding(manifest.name, adapter)
        return adapter

    def abilities_of(self, platform: str) -> Abilities | None:
        """Return the abilities of a platform; None when it is switched off."""
        return self._abilities.get(platform)

    def names(self) -> list[str]:
        """Return the names of the platforms that are switched on."""
        return list(self._abilities)

    def sending(self) -> list[str]:
        """Return the names of the platforms that replies are sent to."""
        return [name for name, able in self._abilities.items() if not able.answers_in_place]

    def connected(self) -> dict[str, BasePlatformAdapter]:
        """Return the adapters that are connected, by platform."""
        return {each.manifest.name: each.adapter for each in self.supervisors if each.adapter}

    def for_stored_chats(self) -> dict[str, BasePlatformAdapter]:
        """Return the connected adapters for chats by their stored ids, which may have migrated."""
        return {name: self._forwarding[name] for name in self.connected()}

    @property
    def is_complete(self) -> bool:
        """Return whether every platform is connected."""
        return all(supervisor.adapter is not None for supervisor in self.supervisors)

    async def wait_until_tried(self) -> None:
        """Wait until each platform was tried once."""
        for supervisor in self.supervisors:
            await supervisor.settled.wait()

    def release(self) -> None:
        """Release the accounts."""
        for lock in self._locks.values():
            lock.release()

    def is_current(self, platform: str, adapter: BasePlatformAdapter) -> bool:
        """Return whether an adapter is still the connected one of its platform."""
        return self.connected().get(platform) is adapter

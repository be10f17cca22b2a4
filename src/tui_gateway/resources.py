"""The resources of the server, opened when first needed: settings, store, engine."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from hermes_core.loading import loading

if TYPE_CHECKING:
    from hermes_agent.assembly import Assembly
    from hermes_core.paths import Home
    from hermes_core.settings import Settings
    from hermes_engine.engine import Engine
    from hermes_state.store import Store
    from tui_gateway.presence import Presence


class _LazyAssembly:
    """An assembly that is made when something of it but the store is needed."""

    def __init__(self, store: "Store", make: "Callable[[], Assembly]") -> None:
        self.store = store
        self._make = make

    def __getattr__(self, name: str) -> object:
        return getattr(self._make(), name)


class Resources:
    """Everything is created once, on first use. After `close` it is created again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._assembling = threading.Lock()
        """Held while plugins load, which may take long: nothing but what needs them waits for that."""
        self._home: Home | None = None
        self._settings: Settings | None = None
        self._store: Store | None = None
        self._assembly: Assembly | None = None
        self._engine: Engine | None = None
        self._presence: Presence | None = None

    @property
    def home(self) -> "Home":
        with loading:
            from hermes_core import config  # noqa: PLC0415 -- a server that waits needs no settings

        with self._lock:
            if self._home is None:
                self._home = config.home()
            return self._home

    @property
    def settings(self) -> "Settings":
        """The settings; read once, and the log is set up with them."""
        with loading:
            from hermes_core import config, log  # noqa: PLC0415 -- as above

        with self._lock:
            if self._settings is None:
                self._settings = config.load(self.home)
                log.set_up(self.home.logs, self._settings.log.level)
            return self._settings

    def reload(self) -> None:
        """Read the settings anew; what is made from now on follows them."""
        with loading:
            from hermes_core import config  # noqa: PLC0415 -- as above

        with self._lock:
            self._settings = config.load(self.home)
            if self._assembly is not None:
                self._assembly.renew(self._settings)

    @property
    def presence(self) -> "Presence":
        with loading:
            from tui_gateway.presence import Presence  # noqa: PLC0415 -- as above

        with self._lock:
            if self._presence is None:
                self._presence = Presence(self.home.root / "open")
            return self._presence

    def store(self) -> "Store":
        """The store of the home; raises StoreError."""
        with loading:
            import hermes_state  # noqa: PLC0415 -- as above

        with self._lock:
            if self._store is None:
                self.home.create()
                self._store = hermes_state.SessionDB(
                    self.home.database, busy_timeout_s=self.settings.store.busy_timeout_s
                )
            return self._store

    def assembly(self, store: "Store") -> "Assembly":
        """Return what agents are made of."""
        # the agent with its tools, and the plugins: loaded with the first session
        with loading:
            from hermes_agent.assembly import Assembly  # noqa: PLC0415
            from hermes_cli import plugins  # noqa: PLC0415

        with self._assembling:
            if self._assembly is None:
                settings = self.settings
                assembly = Assembly(self.home, settings, store, plugins)
                with self._lock:
                    if settings is not self.settings:
                        assembly.renew(self.settings)
                    self._assembly = assembly
            return self._assembly

    def engine(self, store: "Store", make: "Callable[[Assembly], Engine]") -> "Engine":
        """Return the engine that runs the turns; it is made and started once.

        It accepts prompts before the plugins are loaded, which its turns wait for.
        """
        with self._lock:
            if self._engine is None:
                lazy = _LazyAssembly(store, lambda: self.assembly(store))
                engine = make(cast("Assembly", lazy))
                engine.start()
                self._engine = engine
            return self._engine

    def close(self) -> None:
        """Release everything; a part that fails does not keep the others."""
        with self._lock:
            engine, self._engine = self._engine, None
            assembly, store, presence = self._assembly, self._store, self._presence
            self._assembly = self._store = self._presence = self._settings = self._home = None
        for part in (engine, assembly, store, presence):
            if part is not None:
                part.close()

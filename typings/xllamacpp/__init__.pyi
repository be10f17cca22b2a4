from collections.abc import Callable
from typing import Any

__version__: str

class _Model:
    path: str

class _Threads:
    n_threads: int

class CommonParams:
    model: _Model
    cpuparams: _Threads
    cpuparams_batch: _Threads
    api_keys: list[str]
    cache_ram_mib: int
    cors_origins: str
    fit_params: bool
    n_batch: int
    n_ctx: int
    n_parallel: int
    slot_save_path: str
    ui: bool
    verbosity: int
    warmup: bool

class Server:
    def __init__(self, params: CommonParams) -> None: ...
    @property
    def listening_address(self) -> str: ...
    def handle_chat_completions(
        self, body: dict[str, Any], callback: Callable[[dict[str, Any]], bool] | None = None
    ) -> dict[str, Any] | None: ...
    def handle_completions(
        self, body: dict[str, Any], callback: Callable[[dict[str, Any]], bool] | None = None
    ) -> dict[str, Any] | None: ...

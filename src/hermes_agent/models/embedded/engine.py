"""The engine: llama.cpp inside this process, one for each model file.

A call of the engine blocks and cannot be broken off from outside; it only asks, after every piece of the
prompt and every token, whether to go on. So each call has a thread of its own: whoever waits for it
leaves at once when stopped, and the engine ends the call at its next question. The next call waits for
that.
"""

import atexit
import http.client
import json
import logging
import os.path
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from hermes_agent.models.embedded import hardware
from hermes_agent.models.embedded.slots import Slots
from hermes_agent.turn.events import Event, Notice, Sink
from hermes_agent.turn.stop import Stop
from hermes_core import config
from hermes_core.errors import (
    ContextTooLongError,
    Interrupted,
    ModelError,
    ModelMissingError,
    ModelRefusedError,
)
from hermes_core.installation import install_command
from hermes_core.paths import make_folder
from hermes_core.text import human_size

if TYPE_CHECKING:
    import xllamacpp

logger = logging.getLogger(__name__)

PROVIDER = "embedded"
"""Its name in the table of providers."""
_BATCH = 64
"""Tokens of the prompt between two checks for a stop."""

_PROMPT_CACHE_MIB = 256
_SHORTEST_HEAD = 600
"""Characters; a shorter head is read faster than it is worth keeping."""

_PAGES = 4 * 1024 * 1024
_GLANCE_S = 0.05
_LAST_WAIT_S = 5.0

Chunk = dict[str, Any]
_Job = Callable[[Callable[[Event | Chunk], None], Callable[[], bool]], None]


class Served(NamedTuple):
    """The engine's address; it speaks OpenAI's and Anthropic's formats there."""

    base_url: str
    api_key: str


class Engine:
    """One loaded model file; loads when it is first asked."""

    def __init__(self, path: Path, window: int, cache: Path | None = None) -> None:
        self.path = path
        self.window = window
        self._cache = cache
        self._slots: Slots | None = None
        self._server: xllamacpp.Server | None = None
        self._key = secrets.token_urlsafe(24)
        self._busy = threading.Lock()
        self._closing = threading.Event()
        self._heads: set[str] = set()

    def chat(
        self,
        body: Mapping[str, Any],
        *,
        stop: Stop,
        report: Sink,
        take: Callable[[Chunk], None],
    ) -> None:
        """Continue a conversation; `take` gets the answer's chunks, in OpenAI's form."""

        def job(tell: Callable[[Event | Chunk], None], is_over: Callable[[], bool]) -> None:
            server = self._load(tell, is_over)
            self._read_head(server, body["messages"], tell, is_over)
            if is_over():
                return

            def receive(chunk: Chunk) -> bool:
                tell(chunk)
                return is_over()

            streaming = {**body, "stream": True, "return_progress": True}
            server.handle_chat_completions(streaming, receive)

        self._run(job, stop, report, take)

    def serve(self) -> Served:
        """Load, and say where the engine listens on this hardware."""
        with self._busy:
            return Served(
                self._load(_tell_nobody, self._closing.is_set).listening_address, self._key
            )

    def close(self) -> None:
        """End a running call and release the model."""
        self._closing.set()
        if self._busy.acquire(timeout=_LAST_WAIT_S):
            self._server = None
            self._busy.release()

    def _run(self, job: _Job, stop: Stop, report: Sink, take: Callable[[Chunk], None]) -> None:
        """Run a job in its own thread and hand on what it tells, until it ends or we are stopped."""
        events: queue.SimpleQueue[Event | Chunk | Exception | None] = queue.SimpleQueue()
        is_abandoned = threading.Event()

        def is_over() -> bool:
            return is_abandoned.is_set() or self._closing.is_set()

        def leave() -> None:
            is_abandoned.set()
            events.put(Interrupted())

        def work() -> None:
            try:
                job(events.put, is_over)
            except Exception as error:  # noqa: BLE001 -- raised again where the answer is waited for
                events.put(error)
            finally:
                self._busy.release()
                events.put(None)

        self._wait_for_turn(stop)
        with stop.callback(leave):
            threading.Thread(target=work, name="embedded-model", daemon=True).start()
            try:
                while (item := events.get()) is not None:
                    _dispatch(item, report, take)
            finally:
                is_abandoned.set()
        if self._closing.is_set():
            raise Interrupted

    def _wait_for_turn(self, stop: Stop) -> None:
        stop.check()
        while not self._busy.acquire(timeout=_GLANCE_S):
            stop.check()

    def _load(
        self, tell: Callable[[Event], None], is_over: Callable[[], bool]
    ) -> "xllamacpp.Server":
        if self._server is not None:
            return self._server
        if not self.path.is_file():
            raise ModelMissingError(
                f"The model file {self.path} is gone.", fix="Download it again: hermes model pull."
            )
        library = _library()
        size = human_size(self.path.stat().st_size)
        tell(Notice(f"Loading the embedded model {self.path.stem} ({size})."))
        params = self._params(library)
        # While it loads, nothing else in this process runs: slow disks are to be waited for before.
        _read_into_page_cache(self.path, is_over)
        try:
            server = library.Server(params)
        except (RuntimeError, ValueError) as error:
            raise ModelMissingError(
                f"The model file {self.path} cannot be loaded: {error}.",
                fix="It may be damaged or too new for the engine. Download it again: hermes model pull.",
            ) from error
        self._server = server
        return server

    def _params(self, library: Any) -> "xllamacpp.CommonParams":  # noqa: ANN401 -- the module
        params = library.CommonParams()
        params.model.path = str(self.path)
        params.n_ctx = self.window
        params.n_batch = _BATCH
        params.n_parallel = 1
        params.fit_params = False  # the window was chosen to fit; trying takes longer than loading
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = hardware.cores()
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        params.warmup = False
        params.verbosity = -1
        # Any web page open on this machine could ask the port, were there no key.
        params.api_keys = [self._key]
        params.cors_origins = ""
        params.ui = False
        if self._cache is not None:
            state = self.path.stat()
            identity = f"{library.__version__} {self.path.name} {state.st_size} {state.st_mtime_ns}"
            self._slots = Slots(make_folder(self._cache), identity)
            params.slot_save_path = f"{self._cache}/"
        return params

    def _read_head(
        self,
        server: "xllamacpp.Server",
        messages: Sequence[Mapping[str, Any]],
        tell: Callable[[Event], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Bring the engine to the end of the system prompt: from disk, or by reading and saving it."""
        system = messages[0]["content"] if messages and messages[0]["role"] == "system" else ""
        if self._slots is None or len(system) < _SHORTEST_HEAD or system in self._heads:
            return
        is_first = not self._heads
        self._heads.add(system)
        head = self._rendered_head(server, system)
        if not head or self._restore(server, self._slots, self._slots.find(head)):
            return
        if is_first and not self._restore(server, self._slots, self._slots.nearest()):
            tell(Notice("First run: reading the system prompt (only once)."))
        reading = {"prompt": head, "n_predict": 0, "stream": True, "return_progress": True}
        server.handle_completions(reading, lambda _chunk: is_over())
        if is_over():
            self._heads.discard(system)
        elif self._slot_action(server, "save", self._slots.draft(head)):
            self._slots.keep(head)

    def _rendered_head(self, server: "xllamacpp.Server", system: str) -> str:
        """Render the beginning of every prompt with this system text, in the model's own template.

        Empty when the template has no place for a system text.
        """
        prompts: list[str] = []
        for text in ("a", "b"):
            messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
            status, answer = self._post(server, "/apply-template", {"messages": messages})
            prompts.append(answer["prompt"] if status == http.client.OK else "")
        return os.path.commonprefix(prompts)

    def _restore(self, server: "xllamacpp.Server", slots: Slots, name: str | None) -> bool:
        if name is None:
            return False
        if not self._slot_action(server, "restore", name):
            slots.drop(name)
            return False
        return True

    def _slot_action(self, server: "xllamacpp.Server", action: str, name: str) -> bool:
        status, answer = self._post(server, f"/slots/0?action={action}", {"filename": name})
        if status != http.client.OK:
            logger.warning("the engine could not %s %s: %s", action, name, answer)
        return status == http.client.OK

    def _post(self, server: "xllamacpp.Server", path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(
            urlsplit(server.listening_address).netloc, timeout=60
        )
        try:
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


def _dispatch(item: Event | Chunk | Exception, report: Sink, take: Callable[[Chunk], None]) -> None:
    if isinstance(item, ValueError | RuntimeError):  # how the engine says no to a request
        raise ModelRefusedError(
            f"The embedded model cannot answer this: {item}.", provider=PROVIDER
        ) from item
    if isinstance(item, Exception):
        raise item
    if isinstance(item, Event):
        report(item)
    elif "error" in item:
        raise _error(item["error"])
    else:
        take(item)


def _error(error: Mapping[str, Any]) -> ModelError:
    status = int(error.get("code") or 500)
    message = f"The embedded model cannot answer: {error.get('message') or 'no reason given'}."
    if error.get("type") == "exceed_context_size_error":
        return ContextTooLongError(message, status=status, provider=PROVIDER)
    if status < 500:
        return ModelRefusedError(message, status=status, provider=PROVIDER)
    return ModelError(message, status=status, provider=PROVIDER, retryable=True)


def _library() -> Any:  # noqa: ANN401 -- the module
    """The engine's library; raises ModelMissingError with what to install."""
    if hardware.lacks_vectors():
        raise ModelMissingError(
            "This processor has no AVX2, which the embedded model's engine needs.",
            fix="Set a provider's key (hermes model), or run a local server such as Ollama.",
        )
    # By default waiting threads spin, and on a busy machine hinder the ones they wait for.
    config.set_default("GOMP_SPINCOUNT", "1000")
    # A failed assertion would start a debugger to print where it happened.
    config.set_default("GGML_NO_BACKTRACE", "1")
    try:
        import xllamacpp  # noqa: PLC0415 -- 22 MB and a fifth of a second, for this model alone
    except ImportError as error:
        if "libgomp" in str(error):
            raise ModelMissingError(
                "The embedded model's engine needs the system library libgomp.",
                fix="Install it, on Debian and Ubuntu: apt install libgomp1.",
            ) from error
        raise ModelMissingError(
            f"The embedded model's engine is not installed: {error}.",
            fix=f"Install it: {install_command('local')}.",
        ) from error
    return xllamacpp


def _read_into_page_cache(path: Path, is_over: Callable[[], bool]) -> None:
    """Ask the system to cache the file's pages; raise Interrupted when the caller stops it."""
    buffer = bytearray(_PAGES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            if is_over():
                raise Interrupted


def _tell_nobody(_event: Event) -> None:
    pass


_engines: dict[Path, Engine] = {}
_lock = threading.Lock()


def engine(path: Path, window: int, cache: Path | None = None) -> Engine:
    """The engine for a file; there is one a file in a process, with the window it was first given."""
    with _lock:
        if not _engines:
            atexit.register(close_all)
        key = path.resolve()
        if key not in _engines:
            _engines[key] = Engine(path, window, cache)
        return _engines[key]


def serve(path: Path, window: int = 4096) -> Served:
    """Load a model file and say where it can be asked over HTTP on this hardware."""
    return engine(path, window).serve()


def close_all() -> None:
    """Release every model."""
    with _lock:
        engines = list(_engines.values())
        _engines.clear()
    for engine in engines:
        engine.close()

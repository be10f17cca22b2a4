"""Titles: made after the first exchange, in a thread of its own, so that no reply waits for one."""

import logging
import threading
from collections.abc import Callable

from hermes_agent.models.base import Model, Request
from hermes_agent.tokens import text_tokens
from hermes_agent.turn.events import Sink, Titled, ignore
from hermes_agent.turn.meter import Meter
from hermes_agent.turn.stop import Stop
from hermes_core.errors import BudgetSpent, HermesError, Interrupted
from hermes_core.text import one_line, truncate
from hermes_state.ledger import messages, titles
from hermes_state.store import Store
from hermes_state.values import Limits

logger = logging.getLogger(__name__)

_ASK = (
    "Name the topic of this conversation in three to six words, in its language. "
    "Answer with the title alone: no quotes, no full stop."
)
_EXCERPT_LENGTH = 600
_MAX_WORDS = 10
_MAX_TOKENS = 60


class Titler:
    """Gives a conversation a title, once, when nobody else has."""

    def __init__(
        self,
        store: Store,
        model: Callable[[], Model],
        limits: Limits,
        *,
        is_wanted: bool,
        report: Sink = ignore,
    ) -> None:
        self._store = store
        self._model = model
        self._limits = limits
        self._stop = Stop()
        self._report = report
        self._is_done = not is_wanted
        self._thread: threading.Thread | None = None

    def start_if_untitled(self, session_id: str, turn_id: str) -> None:
        """Start to make a title, unless there is one or it was tried before."""
        if self._is_done:
            return
        self._is_done = True
        if self._store.read(titles.title_of, session_id) is None:
            thread = threading.Thread(
                target=self._work, args=(session_id, turn_id), name="title", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no memory for a thread
                logger.info("no title for %s: %s", session_id, error)
            else:
                self._thread = thread

    def close(self, wait_s: float = 0.0) -> None:
        """Give up what is under way; a conversation can live without a title."""
        if self._thread is not None and wait_s:
            self._thread.join(wait_s)
        self._stop.set()

    def _work(self, session_id: str, turn_id: str) -> None:
        try:
            title = self._ask(session_id, turn_id)
            if title and self._store.write(titles.set_if_empty, session_id, title):
                self._report(Titled(session_id, title))
        except Interrupted:
            logger.info("no title for %s: it was stopped", session_id)
        except (HermesError, BudgetSpent) as error:
            logger.info("no title for %s: %s", session_id, error)

    def _ask(self, session_id: str, turn_id: str) -> str:
        excerpts = [
            f"{message['role']}: {truncate(one_line(str(message['content'])), _EXCERPT_LENGTH)}"
            for message in self._store.read(messages.as_conversation, session_id)
            if message["role"] in ("user", "assistant") and message["content"]
        ]
        question = f"{_ASK}\n\n" + "\n".join(excerpts[:2])
        request = Request("", (), [{"role": "user", "content": question}], _MAX_TOKENS)
        account = Meter(self._store, turn_id, self._limits)
        reply = account.ask_separately(
            self._model(), request, text_tokens(question), self._stop, session_id, "title"
        )
        return _cleaned(reply.text)


def _cleaned(text: str) -> str:
    """The title in what a model said, or nothing when it said something else."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    title = lines[0].removeprefix("Title:").strip("\"'`*#_. ") if lines else ""
    return truncate(title, 80) if 0 < len(title.split()) <= _MAX_WORDS else ""

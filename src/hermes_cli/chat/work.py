"""Work beside the main thread, which meanwhile shows, asks and listens."""

import signal
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from hermes_agent.agent import Agent
from hermes_agent.events import Event, QuestionAnswered, QuestionAsked, TextDelta, TurnEnded
from hermes_agent.stop import Stop
from hermes_cli.chat.keys import Keys
from hermes_cli.chat.mailbox import Done, Mailbox
from hermes_cli.chat.signals import EXIT_HANGUP, EXIT_INTERRUPTED, Leaving, Signalled
from hermes_core.errors import StoreError

T = TypeVar("T")

_TICK_S = 0.1


class View(Protocol):
    """Somebody who shows turns; `render` and `plain` have one each."""

    def begin(self) -> None: ...
    def hear(self, event: Event) -> None: ...
    def tick(self) -> None: ...
    def pause(self) -> None: ...
    def note(self, text: str, style: str = "") -> None: ...
    def plain(self, text: str, indent: int = 0) -> None: ...
    def markdown(self, text: str) -> None: ...
    def summary(self) -> None: ...


class Asker(Protocol):
    """Somebody who asks the person."""

    def ask(self, question: QuestionAsked) -> str | None:
        """The answer; None when it is not needed any more. Raises Leaving, KeyboardInterrupt."""
        ...

    def settle(self, question_id: str) -> None:
        """The question needs no answer any more; called from any thread."""
        ...


class _Job(Generic[T]):
    """A function in a thread of its own."""

    def __init__(self, work: Callable[[], T], done: Callable[[], None]) -> None:
        self._work = work
        self._done = done
        self._result: T | None = None
        self._error: BaseException | None = None
        self.is_done = False
        self._thread = threading.Thread(target=self._run, name="turn", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 -- handed to the thread that waits
            self._error = error
        self._done()

    def result(self) -> T:
        """What the function returned; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Attendant:
    """Stays in the main thread while something works: shows events, asks questions, hears signals."""

    def __init__(
        self, view: View, mailbox: Mailbox, asker: Asker | None = None, keys: Keys | None = None
    ) -> None:
        self.view = view
        self.mailbox = mailbox
        self._asker = asker
        self._keys = keys
        self.is_running = False
        self.stop = Stop()
        """That of the last work; set when the person interrupted it."""
        self.has_ended = False
        """Whether a turn has told its end."""
        self._settled: set[str] = set()
        """Questions that need no answer any more."""

    def attend(self, agent: Callable[[], Agent], work: Callable[[Stop], T]) -> T:
        """Do the work in a thread; Ctrl-C sets the stop it is given, a second one raises Leaving."""
        self.stop = stop = Stop()
        self.has_ended = False
        self.is_running = True
        job = _Job(lambda: work(stop), lambda: self.mailbox.post(Done()))
        try:
            self._until_done(agent)
        finally:
            self.is_running = False
        return job.result()

    def _until_done(self, agent: Callable[[], Agent]) -> None:
        while True:
            self._listen()
            while (signalled := self.mailbox.take_signal()) is not None:
                self._hear(signalled)
            while (item := self.mailbox.take()) is not None:
                if isinstance(item, Done):
                    return
                self._deal_with(item, agent())
            self.view.tick()

    def _listen(self) -> None:
        seconds = _TICK_S if self.mailbox.is_empty else 0
        if self._keys is None:
            self.mailbox.wait(seconds)
        elif self.mailbox.wait(seconds, self._keys.descriptor) and not self._keys.read():
            raise Leaving(EXIT_HANGUP)

    def _deal_with(self, item: Event, agent: Agent) -> None:
        if isinstance(item, QuestionAsked):
            self.view.pause()
            self._ask(item, agent)
        else:
            self.has_ended = self.has_ended or isinstance(item, TurnEnded)
            self.view.hear(self._joined(item))

    def _joined(self, event: Event) -> Event:
        """Pieces of text that have come together are shown together."""
        while isinstance(event, TextDelta):
            following = self.mailbox.take_if(TextDelta)
            if following is None:
                break
            event = TextDelta(event.text + following.text)
        return event

    def _hear(self, signalled: Signalled) -> None:
        signalled.check()
        if signalled.number == signal.SIGCONT and self._keys is not None:
            self._keys.quiet()
        if signalled.number == signal.SIGINT:
            self._interrupt()

    def _interrupt(self) -> None:
        """Stop the work; the second time, leave."""
        if self.stop.is_set:
            raise Leaving(EXIT_INTERRUPTED)
        self.stop.set()

    def _ask(self, question: QuestionAsked, agent: Agent) -> None:
        is_moot = self.stop.is_set or question.question_id in self._settled
        if self._asker is None or is_moot:
            return
        try:
            answer = self._asker.ask(question)
        except KeyboardInterrupt:
            self._interrupt()
            return
        except Leaving as wish:
            raise Leaving(wish.status or EXIT_INTERRUPTED) from None  # in the middle of a turn
        if answer is None:
            return
        try:
            agent.answer(question.question_id, answer)
        except StoreError:
            self.view.note("The question was settled elsewhere in the meantime.")

    def post(self, event: Event) -> None:
        """The sink of the agent; called from the threads that work."""
        if isinstance(event, QuestionAnswered):
            self._settled.add(event.question_id)
            if self._asker is not None:
                self._asker.settle(event.question_id)
        self.mailbox.post(event)

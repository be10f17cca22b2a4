"""The open conversation as the interface knows it: who answers, what it costs, what is going on."""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from hermes_protocol import results
from hermes_tui import messages as m
from hermes_tui import wire

State = Literal["starting", "ready", "working", "waiting", "stopping", "lost"]


@dataclass
class Conversation:
    """Changed by answers and events; the status line shows it."""

    live_id: str = ""
    """Names it in calls; another one after every start of the server."""
    stored_id: str = ""
    """Its id in the store; another one after every compaction."""
    state: State = "starting"
    activity: str = ""
    """What a working model is doing just now."""
    info: results.Info = field(default_factory=results.Info)
    began_at: float | None = None
    """When the running turn began, on the monotonic clock."""
    lasted_s: float = 0.0
    """How long the last turn took."""
    waiting: list[str] = field(default_factory=list)
    """Prompts that will be answered after the running one."""
    position: results.Position = field(default_factory=results.Position)
    """The last event of its log that was taken; a server that is reached again continues after it."""
    has_spoken: bool = False
    """Whether anything was said, so that it exists in the store."""
    _fields: wire.Json = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.state in ("working", "waiting", "stopping")

    def open(self, opened: results.Opened) -> None:
        """Be the conversation that the server has opened."""
        self.live_id, self.stored_id = opened.session_id, opened.durable_id
        self.has_spoken = opened.message_count > 0 or bool(opened.messages)
        self.position = results.Position(opened.events.log, opened.events.seq)
        self._fields = {}
        self.info = results.Info()
        self._end()
        self.learn(opened.info.to_wire())

    def advance(self, position: results.Position) -> bool:
        """Note the position of an event; False when it was taken before."""
        if not position.seq:
            return True
        if position.log == self.position.log and position.seq <= self.position.seq:
            return False
        self.position = position
        return True

    def learn(self, news: wire.Json) -> None:
        """Take over what the server says; what it does not mention or does not know stays."""
        changes = {
            key: value
            for key, value in news.items()
            if value is not None and (key, value) != ("usage", {})
        }
        fields = {**self._fields, **changes}
        try:
            self.info = wire.read(fields, results.Info)
        except msgspec.ValidationError:
            return
        self._fields = fields
        self.stored_id = self.info.stored_session_id or self.stored_id

    def handle(self, event: m.Event[Any], now: float) -> bool:
        """Take an event in; tells whether anything is different now."""
        before = (self.state, self.activity, self.info, self.began_at)
        match event:
            case m.TurnStarted():
                self.begin(now)
            case m.TurnEnded():
                self.lasted_s = now - self.began_at if self.began_at is not None else 0.0
                self._end()
                self._use(event.payload.usage)
            case m.UsageChanged():
                self._use(event.payload)
            case m.SessionChanged():
                self.learn(event.mentioned)
            case m.TitleChanged():
                self.learn({"title": event.payload.title})
            case m.StatusChanged() if event.payload.kind == "waiting" and not self.is_running:
                self.begin(now)
                self.activity = event.words
            case m.ApprovalAsked() | m.QuestionAsked():
                self.state, self.activity = "waiting", ""
            case _:
                self._do(_activity(event))
        return before != (self.state, self.activity, self.info, self.began_at)

    def _use(self, usage: results.Usage) -> None:
        self.learn({"usage": {**self._fields.get("usage", {}), **usage.to_wire()}})

    def _do(self, activity: str | None) -> None:
        if activity is not None and self.state != "stopping":
            self.activity = activity

    def begin(self, now: float) -> None:
        """A turn runs."""
        self.state, self.activity, self.began_at, self.has_spoken = "working", "", now, True

    def answered(self) -> None:
        """Nothing waits for the person any more."""
        if self.state == "waiting":
            self.state = "working"

    def stop(self) -> None:
        """The person wants the turn to stop."""
        self.state, self.activity = "stopping", ""

    def _end(self) -> None:
        self.state, self.activity, self.began_at = "ready", "", None

    def connection_lost(self) -> None:
        """The server is gone; what is known stays for the next one."""
        self.live_id, self.state, self.activity, self.began_at = "", "lost", "", None


def _activity(event: m.Event[Any]) -> str | None:
    """Name the activity of the model that an event reports; None if it reports none."""
    match event:
        case m.ReplyDelta():
            return "writing"
        case m.ReasoningDelta() | m.ToolEnded():
            return "thinking"
        case m.ToolGenerating() | m.ToolStarted():
            return event.payload.name
        case m.StatusChanged():
            return "" if event.payload.kind == "ready" else event.words
        case _:
            return None

"""The compactor: replace the middle of a conversation by a summary and rotate it to a new session.

Strategies in order: prune old tool outputs; a summary by the model; a digest without one; the digest and
the last request alone. Each must free its share or the next takes over; the last needs no model and
always fits, so compaction ends. Nothing is written before the one rotation at the end.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from hermes_agent.compaction import plan, pruning, summary
from hermes_agent.compaction.plan import Limits, Split, block_size
from hermes_agent.compaction.summarizer import MAX_EXCESS, Ask, Room, Summarizer
from hermes_agent.compaction.summary import Material, Summary
from hermes_agent.compaction.transcript import Block, blocks, entries, original_id
from hermes_agent.hooks import Hooks, NoHooks
from hermes_agent.models.base import ToolSpec, Usage
from hermes_agent.tokens import Estimator
from hermes_agent.turn.events import Compacted, Compacting, Notice, Sink, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelUnreachableError
from hermes_core.settings import CompactionSettings
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger.sessions import new_id
from hermes_state.store import Store
from hermes_state.values import Carried, Lease

logger = logging.getLogger(__name__)

Strategy = Literal["prune", "summary", "digest", "cut"]


class Job(msgspec.Struct, frozen=True):
    """One conversation to compact."""

    store: Store
    session_id: str
    estimator: Estimator
    window: int
    """Tokens of request and reply together, of the model that continues the conversation."""
    max_output: int
    ask: Ask | None = None
    """Asks a model for the summary, within its budget; None: do without a model."""
    settings: CompactionSettings = CompactionSettings()
    system: str = ""
    tools: Sequence[ToolSpec] = ()
    lease: Lease | None = None
    stop: Stop = msgspec.field(default_factory=Stop)
    report: Sink = ignore
    hooks: Hooks = msgspec.field(default_factory=NoHooks)
    platform: str = ""
    force: bool = False
    """Compact at any size: a person asked for it, or a provider refused the request as too long."""
    target_share: float = 0.5
    """The part of the conversation, or of the room for it, to aim at."""
    focus: str = ""
    """The topic that the summary should keep above all."""
    answering: int = 0
    """The id of the message that the running turn answers; later ones are queued."""
    ask_window: int = 0
    """The window of the model that writes the summary; 0: the same."""


class Outcome(msgspec.Struct, frozen=True):
    """A conversation that was compacted into a new session."""

    old_session_id: str
    new_session_id: str
    tokens_before: int
    tokens_after: int
    target: int
    """The size aimed at; a pass that freed its share may end above it."""
    strategy: Strategy
    summary: str
    """The text that replaces messages; empty when none are replaced."""
    usage: Usage
    """Of the calls for the summary, including those whose reply was not used."""
    fault: str
    """Why the model's summary was not used; empty when it was, or was not asked for."""


class Note(NamedTuple):
    """The message that replaces others."""

    text: str
    first: int
    last: int

    @property
    def message(self) -> dict[str, Any]:
        return {"role": "user", "content": self.text, "summary_of": [self.first, self.last]}


class Draft(NamedTuple):
    """The first messages of the new session, in order: blocks, the note, blocks."""

    strategy: Strategy
    head: Sequence[Block]
    note: Note | None
    rest: Sequence[Block]

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """Return the messages as a model will see them."""
        note = [self.note.message] if self.note else []
        before, after = entries(self.head), entries(self.rest)
        return [*(e.message for e in before), *note, *(e.message for e in after)]

    @property
    def carried(self) -> list[Carried]:
        """Return the messages as `rotate_session` takes them."""
        note = [self.note.message] if self.note else []
        before, after = entries(self.head), entries(self.rest)
        return [*(e.carried for e in before), *note, *(e.carried for e in after)]


def compact(job: Job) -> Outcome | None:
    """Compact a conversation; None when there is no need, nothing to gain, or no connection now.

    Raises Interrupted, BudgetSpent and StoreError, and then changes nothing.
    """
    job.stop.check()
    rows = job.store.read(message_ledger.as_conversation, job.session_id)
    before = job.estimator.count(rows, job.system, job.tools)
    if not job.force and not plan.needed(before, job.window, job.max_output, job.settings):
        return None
    limits = _limits(job, before)
    if before <= limits.target:
        return None
    child_id = _free_id(job.store)
    job.hooks.invoke_hook(
        "pre_compaction",
        old_session_id=job.session_id,
        new_session_id=child_id,
        message_count=len(rows),
        platform=job.platform,
    )
    job.report(Compacting(len(rows), before))
    compaction = _Compaction(job, blocks(rows), limits, before)
    draft = compaction.choose()
    if draft is None:
        return None
    job.stop.check()
    job.store.write(  # with what arrived while the summary was written
        lineage.rotate,
        job.session_id,
        draft.carried,
        child_id=child_id,
        since=max(row["id"] for row in rows),
        lease=job.lease,
    )
    outcome = compaction.outcome(draft, child_id)
    _report(job, outcome)
    return outcome


def _limits(job: Job, before: int) -> Limits:
    overhead = job.estimator.count((), job.system, job.tools)
    return plan.limits_of(
        overhead=overhead,
        history=before - overhead,
        window=job.window,
        limit=plan.limit_of(job.window, job.max_output, job.settings),
        tail=job.settings.tail,
        target_share=job.target_share,
    )


def _free_id(store: Store) -> str:
    """Return an id for the new session, which hooks get before it exists."""
    while store.read(sessions.find, chosen := new_id()) is not None:
        pass
    return chosen


def _report(job: Job, outcome: Outcome) -> None:
    job.hooks.invoke_hook(
        "post_compaction",
        old_session_id=outcome.old_session_id,
        new_session_id=outcome.new_session_id,
        summary=outcome.summary,
        platform=job.platform,
    )
    job.report(
        Compacted(
            outcome.old_session_id,
            outcome.new_session_id,
            outcome.tokens_before,
            outcome.tokens_after,
            outcome.strategy,
        )
    )


class _Compaction:
    """Tries the strategies of one job in order."""

    def __init__(self, job: Job, conversation: list[Block], limits: Limits, before: int) -> None:
        self._job = job
        self._blocks = conversation
        self._limits = limits
        self._before = before
        self._sizes = job.estimator
        self._split: Split = plan.split(conversation, limits, self._sizes, job.answering)
        earlier = "\n\n".join(summary.body_of(block.first) for block in self._split.summaries)
        self._material = Material(self._split.head, earlier, self._split.middle)
        self._summarizer = None if job.ask is None else _summarizer(job, job.ask)
        self._fault = ""

    def choose(self) -> Draft | None:
        """Return the first draft that frees enough; None when none does, or to wait for a connection."""
        try:
            return self._first_enough(self._drafts())
        except ModelUnreachableError as error:
            if not self._job.force and self._still_fits():
                logger.info("session %s: compaction postponed: %s", self._job.session_id, error)
                self._job.report(Notice(f"Compaction postponed: {error.message}"))
                return None
            self._report_fault(error.message)
            return self._first_enough(self._drafts_without_model())

    def outcome(self, draft: Draft, child_id: str) -> Outcome:
        """Return the outcome of a draft that has become a session."""
        return Outcome(
            old_session_id=self._job.session_id,
            new_session_id=child_id,
            tokens_before=self._before,
            tokens_after=self._size(draft),
            target=self._limits.target,
            strategy=draft.strategy,
            summary=draft.note.text if draft.note else "",
            usage=self._summarizer.usage if self._summarizer else Usage(),
            fault=self._fault,
        )

    def _size(self, draft: Draft) -> int:
        """Return the tokens of a request with this draft."""
        return self._sizes.count(draft.messages, self._job.system, self._job.tools)

    def _first_enough(self, drafts: Iterator[Draft]) -> Draft | None:
        return next((draft for draft in drafts if self._is_enough(self._size(draft))), None)

    def _is_enough(self, after: int) -> bool:
        """Tell whether a draft of this size will do; a forced compaction must reach the target."""
        if self._job.force:
            return after <= self._limits.target
        return self._limits.is_enough(self._before, after)

    def _still_fits(self) -> bool:
        """Tell whether the conversation can continue as it is for now."""
        reply = min(self._job.max_output, self._job.window // 8)
        return self._before + reply <= self._job.window

    # -- strategies ------------------------------------------------------------------------------

    def _drafts(self) -> Iterator[Draft]:
        if not self._job.focus:
            yield self._pruned()
        if self._split.middle and self._summarizer is not None:
            yield from self._by_model(self._summarizer)
        yield from self._drafts_without_model()

    def _pruned(self) -> Draft:
        """Return a draft with every block, in which old tool outputs are cut."""
        split = self._split
        old = {original_id(block.first) for block in (*split.head, *split.middle)} - split.in_flight
        pruned = [
            pruning.prune(block, self._sizes) if original_id(block.first) in old else block
            for block in self._blocks
        ]
        return Draft("prune", [], None, pruned)

    def _by_model(self, summarizer: Summarizer) -> Iterator[Draft]:
        written = summarizer.update(self._material, self._summary_room())
        if written is None:
            self._report_fault(summarizer.fault)
            return
        if draft := self._around("summary", _note(written, self._split)):
            yield draft

    def _report_fault(self, fault: str) -> None:
        self._fault = fault
        logger.info("session %s: the model's summary is unusable: %s", self._job.session_id, fault)
        self._job.report(Notice(f"There is no summary by the model: {fault.rstrip('.')}."))

    def _drafts_without_model(self) -> Iterator[Draft]:
        note = self._digest(self._material, self._split)
        if draft := self._around("digest" if note else "cut", note):
            yield draft
        for bare in plan.only_requests(self._split, self._job.answering):
            everything = Material([], self._material.earlier, bare.middle)
            yield self._cut(self._digest(everything, bare), bare)

    def _digest(self, material: Material, split: Split) -> Note | None:
        if not split.middle and not split.summaries:
            return None
        room = max(self._limits.summary - self._frame(split), 0)
        return _note(summary.digest(material, room, self._sizes), split)

    def _summary_room(self) -> Room:
        """Return the room for the summary: its share, and at most what the other parts leave."""
        split, limits = self._split, self._limits
        after = sum(block_size(block, self._sizes) for block in (*split.requests, *split.tail))
        spare = limits.room - limits.head - after
        frame = self._frame(split)
        target = max(limits.summary - frame, 0)
        return Room(target, max(target, min(spare - frame, MAX_EXCESS * target)))

    def _frame(self, split: Split) -> int:
        """Return the tokens of a note with an empty summary."""
        return self._sizes.message(_note(summary.of(), split).message)

    def _around(self, strategy: Strategy, note: Note | None) -> Draft | None:
        """Return a draft of first exchange, note, open requests and tail, cut to the room.

        Work in flight stays whole if it fits; otherwise its tool outputs are cut, then all of it.
        None when no readable text would remain.
        """
        split, sizes = self._split, self._sizes
        room = self._limits.room - (sizes.message(note.message) if note else 0)
        opening = [block for block in split.head if not split.is_in_flight(block)]
        head = pruning.fit(opening, self._limits.head, sizes) or []
        after = [*split.requests, *split.tail]
        finished = [block for block in after if not split.is_in_flight(block)]
        room -= sum(block_size(block, sizes) for block in (*head, *finished))
        in_flight = [block for block in (*split.head, *after) if split.is_in_flight(block)]
        fitted = pruning.fit(in_flight, room, sizes)
        if fitted is None:
            return None
        placed = {original_id(block.first): block for block in (*head, *finished, *fitted)}
        return Draft(
            strategy,
            [placed[key] for block in split.head if (key := original_id(block.first)) in placed],
            note,
            [placed[original_id(block.first)] for block in after],
        )

    def _cut(self, note: Note | None, split: Split) -> Draft:
        """Return a draft of the note and the tail, cut to the room; one message always fits."""
        room = self._limits.room - (self._sizes.message(note.message) if note else 0)
        tail = pruning.fit(split.tail, room, self._sizes) or [
            Block((pruning.cut_entry(entry, room, self._sizes),)) for entry in entries(split.tail)
        ]
        return Draft("cut", [], note, tail)


def _summarizer(job: Job, ask: Ask) -> Summarizer:
    window = job.ask_window or job.window
    return Summarizer(ask, job.estimator, job.stop, window, job.max_output, job.focus)


def _note(text: Summary, split: Split) -> Note:
    """Return the note that replaces the middle and the summaries of earlier compactions."""
    ids = [original_id(entry.row) for entry in entries(split.middle)]
    spans = [span for block in split.summaries if (span := summary.span_of(block.first))]
    first = min([*ids, *(span[0] for span in spans)], default=0)
    last = max([*ids, *(span[1] for span in spans)], default=0)
    after = (original_id(b.first) for b in (*split.requests, *split.tail) if b.is_request)
    opening = summary.opening(first, last, [id_ for id_ in after if id_ < last])
    return Note(f"{opening}\n\n{text.text}".rstrip(), first, last)

"""Compaction: a conversation that outgrows its window goes on, shortened, in a new session.

Strategies in order: cut old tool outputs; a summary by the model; a digest without one; the digest and
the last request alone. Each must free its share or the next takes over; the last needs no model and
always fits, so compaction ends. Nothing is written before the one rotation that makes all of it true.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hermes_agent.compaction import digest, draft, judge, plan, summary
from hermes_agent.compaction.draft import Draft, Note, Strategy
from hermes_agent.compaction.material import Material
from hermes_agent.compaction.notes import Ask, Room, Writer
from hermes_agent.compaction.plan import Limits, Split
from hermes_agent.compaction.transcript import Block, blocks
from hermes_agent.hooks import Hooks, NoHooks
from hermes_agent.models.base import ToolSpec, Usage
from hermes_agent.tokens import Estimator
from hermes_agent.turn.events import Compacted, Compacting, Notice, Sink, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelUnreachableError
from hermes_core.settings import CompactionSettings
from hermes_state.ledger.sessions import new_id
from hermes_state.protocol import Store
from hermes_state.values import Lease, Row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One conversation to shorten, and what that takes."""

    store: Store
    session_id: str
    estimator: Estimator
    window: int
    """Tokens of request and reply together, of the model that goes on with the conversation."""
    max_output: int
    ask: Ask | None = None
    """Asks a model for the summary, within whatever budget there is; None: do without one."""
    settings: CompactionSettings = CompactionSettings()
    system: str = ""
    tools: Sequence[ToolSpec] = ()
    lease: Lease | None = None
    stop: Stop = field(default_factory=Stop)
    report: Sink = ignore
    hooks: Hooks = field(default_factory=NoHooks)
    platform: str = ""
    force: bool = False
    """Shorten it now: a person asked for it, or a provider refused the request as too long."""
    target_share: float = 0.5
    """How much of the conversation, or of the room there is for one, may be left."""
    focus: str = ""
    """What the summary should keep above all."""
    answering: int = 0
    """The id of the message that the running turn answers, when others may wait behind it."""
    ask_window: int = 0
    """The window of who writes the summary; 0: the same."""


@dataclass(frozen=True)
class Outcome:
    """A conversation that goes on in a new session."""

    old_session_id: str
    new_session_id: str
    tokens_before: int
    tokens_after: int
    target: int
    """What was aimed at; a pass that freed its share may stay above it."""
    strategy: Strategy
    summary: str
    """What stands in for the messages left out; empty when none are."""
    usage: Usage
    """Of the calls for the summary, also of those that gave nothing to use."""
    fault: str
    """Why the model's summary was not used; empty when it was, or was not asked for."""


def compact(job: Job) -> Outcome | None:
    """Shorten a conversation; None when there is no need, nothing to gain, or no connection now.

    Raises Interrupted, BudgetSpent and StoreError; the conversation is then as it was.
    """
    job.stop.check()
    rows = job.store.get_messages_as_conversation(job.session_id)
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
    work = _Work(job, blocks(rows), limits, before)
    chosen = work.choose()
    if chosen is None:
        return None
    job.stop.check()
    _rotate(job, rows, chosen, child_id)
    return _told(job, _outcome(work, chosen, child_id))


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
    """An id for the new session, which listeners are told before there is one."""
    while store.get_session(chosen := new_id()) is not None:
        pass
    return chosen


class _Work:
    """The choice among the strategies for one job."""

    def __init__(self, job: Job, found: list[Block], limits: Limits, before: int) -> None:
        self.job = job
        self.blocks = found
        self.limits = limits
        self.before = before
        self.sizes = job.estimator
        self.split: Split = plan.split(found, limits, self.sizes, job.answering)
        noted = "\n\n".join(draft.body_of(block.first) for block in self.split.summaries)
        self.material = Material(self.split.head, noted, self.split.middle)
        self.writer = None if job.ask is None else _writer(job, job.ask)
        self.fault = ""

    def choose(self) -> Draft | None:
        """The first draft that frees enough; None when nothing does, or when it is better to wait."""
        try:
            return self._first_enough(self._drafts())
        except ModelUnreachableError as error:
            if not self.job.force and self._still_fits():
                logger.info("not compacted now: %s", error)
                self.job.report(Notice(f"Not shortened now: {error.message}"))
                return None
            self._tell_fault(error.message)
            return self._first_enough(self._drafts_without_model())

    def size(self, chosen: Draft) -> int:
        """The tokens of a request with this draft."""
        return self.sizes.count(chosen.messages, self.job.system, self.job.tools)

    def _first_enough(self, drafts: Iterator[Draft]) -> Draft | None:
        return next((found for found in drafts if self._is_enough(self.size(found))), None)

    def _is_enough(self, after: int) -> bool:
        """Whether a draft of this size will do; whoever insists gets the target."""
        if self.job.force:
            return after <= self.limits.target
        return self.limits.is_enough(self.before, after)

    def _drafts(self) -> Iterator[Draft]:
        if not self.job.focus:
            yield draft.shrunk(self.blocks, self.split, self.sizes)
        if self.split.middle and self.writer is not None:
            yield from self._by_model(self.writer)
        yield from self._drafts_without_model()

    def _by_model(self, writer: Writer) -> Iterator[Draft]:
        written = writer.bring_up_to_date(self.material, self._room())
        if written is None:
            self._tell_fault(writer.fault)
            return
        note = draft.note_of(written, self.split)
        if made := draft.around("summary", note, self.split, self.limits, self.sizes):
            yield made

    def _tell_fault(self, fault: str) -> None:
        self.fault = fault
        logger.info("the model's summary cannot be used: %s", fault)
        self.job.report(Notice(f"There is no summary by the model: {fault.rstrip('.')}."))

    def _drafts_without_model(self) -> Iterator[Draft]:
        note = self._digest(self.material, self.split)
        strategy = "digest" if note else "cut"
        if made := draft.around(strategy, note, self.split, self.limits, self.sizes):
            yield made
        for bare in plan.only_requests(self.split, self.job.answering):
            everything = Material([], self.material.before, bare.middle)
            yield draft.least(self._digest(everything, bare), bare, self.limits, self.sizes)

    def _digest(self, material: Material, split: Split) -> Note | None:
        if not split.middle and not split.summaries:
            return None
        room = max(self.limits.summary - self._frame(split), 0)
        return draft.note_of(digest.make(material, room, self.sizes), split)

    def _room(self) -> Room:
        """What the summary may take: its part of the room, and what the other parts leave of theirs."""
        split, limits = self.split, self.limits
        after = sum(plan.block_size(block, self.sizes) for block in (*split.requests, *split.tail))
        spare = limits.room - limits.head - after
        frame = self._frame(split)
        asked = max(limits.summary - frame, 0)
        return Room(asked, max(asked, min(spare - frame, judge.TOO_LONG * asked)))

    def _frame(self, split: Split) -> int:
        """The tokens of a note that says nothing yet."""
        return self.sizes.message(draft.note_of(summary.of(), split).message)

    def _still_fits(self) -> bool:
        """Whether the conversation can go on as it is for now."""
        reply = min(self.job.max_output, self.job.window // 8)
        return self.before + reply <= self.job.window


def _writer(job: Job, ask: Ask) -> Writer:
    window = job.ask_window or job.window
    return Writer(ask, job.estimator, job.stop, window, job.max_output, job.focus)


def _rotate(job: Job, rows: Sequence[Row], chosen: Draft, child_id: str) -> None:
    """The one write. What somebody said while the summary was made goes along."""
    job.store.rotate_session(
        job.session_id,
        chosen.carried,
        child_id=child_id,
        since=max(row["id"] for row in rows),
        lease=job.lease,
    )


def _outcome(work: _Work, chosen: Draft, child_id: str) -> Outcome:
    writer = work.writer
    return Outcome(
        old_session_id=work.job.session_id,
        new_session_id=child_id,
        tokens_before=work.before,
        tokens_after=work.size(chosen),
        target=work.limits.target,
        strategy=chosen.strategy,
        summary=chosen.note.text if chosen.note else "",
        usage=writer.usage if writer else Usage(),
        fault=work.fault,
    )


def _told(job: Job, outcome: Outcome) -> Outcome:
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
    return outcome

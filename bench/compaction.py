"""A chat of a million tokens in a small and in a large window, compacted whenever it is due."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.result import BenchmarkContext, Result
from bench.text import Writer, conversation
from bench.threads import on_worker
from hermes_agent.compaction import Job, Outcome, compact, needed
from hermes_agent.compaction.plan import MIN_FREED_SHARE
from hermes_agent.history import expand
from hermes_agent.models.base import Reply, Request
from hermes_agent.tokens import Estimator
from hermes_core.settings import CompactionSettings
from hermes_state import SessionDB

TOKENS = 1_000_000
WINDOWS = (8_192, 131_072)
_MAX_OUTPUT = 2_048
_SETTINGS = CompactionSettings()
_PROMPT = Writer(3).text(6_000)  # about what the prompt and the tools take


@dataclass
class _Chat:
    """What was said, and what became of it."""

    db: SessionDB
    window: int
    sizes: Estimator = field(default_factory=lambda: Estimator("bench"))
    tip: str = "s"
    ids: list[int] = field(default_factory=list[int])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    failure: str = ""

    def run(self, tokens: int) -> None:
        self.db.create_session(self.tip, "cli")
        ask = _summarizer()
        overhead = estimate = self.sizes.count((), _PROMPT)
        said = 0
        for message in conversation(tokens):  # more than enough
            self.ids += self.db.append_messages(self.tip, [message])
            size = self.sizes.message(message)
            said, estimate = said + size, estimate + size
            if said >= tokens:
                return
            if message.get("tool_calls"):
                continue  # a turn is not cut between a call and its result
            if needed(estimate, self.window, _MAX_OUTPUT, _SETTINGS):
                estimate = self._compact(ask, overhead)
                if self.failure:
                    return

    def _compact(self, ask: Callable[[Request], Reply], overhead: int) -> int:
        job = Job(self.db, self.tip, self.sizes, self.window, _MAX_OUTPUT, ask=ask, system=_PROMPT)
        found = compact(job)
        if found is None:
            self.failure = f"nothing was freed after {len(self.ids):,} messages"
            return overhead
        self.tip = found.new_session_id
        self.outcomes.append(found)
        return found.tokens_after

    def least_freed(self, overhead: int) -> float:
        """The smallest share of the conversation that a compaction freed."""
        shares = [
            (found.tokens_before - found.tokens_after) / (found.tokens_before - overhead)
            for found in self.outcomes
        ]
        return min(shares, default=0.0)

    def check(self) -> None:
        """Whether every original can be read, in order and once."""
        whole = self.db.get_messages_as_conversation(self.tip, include_ancestors=True)
        first, last = self.ids[0], self.ids[-1]
        if [row["id"] for row in whole] != self.ids:
            self.failure = f"{len(whole):,} of {len(self.ids):,} originals are readable"
        elif [row["id"] for row in expand(self.db, self.tip, f"{first}-{last}")] != self.ids:
            self.failure = "a span cannot be expanded"
        elif found := self.db.check():
            self.failure = found[0]


def _summarizer() -> Callable[[Request], Reply]:
    """A model whose every fourth summary is empty and every fifth far too long."""
    asked = 0
    writer = Writer(11)

    def ask(_request: Request) -> Reply:
        nonlocal asked
        asked += 1
        if asked % 4 == 0:
            return Reply("")
        if asked % 5 == 0:
            return Reply(writer.text(60_000))
        lines = "\n".join(f"- {writer.short(10)}." for _ in range(6))
        return Reply(f"## Goal\n- {writer.short(8)}.\n\n## Decisions\n{lines}\n")

    return ask


def long_chat(bench: BenchmarkContext) -> list[Result]:
    return [_one(bench, window) for window in WINDOWS]


def _one(bench: BenchmarkContext, window: int) -> Result:
    # A chat that never fills its window would show nothing.
    tokens = bench.size(TOKENS, window * 2)
    with SessionDB(bench.place(f"compaction-{window}") / "state.db") as db:
        chat = _Chat(db, window)
        began = time.perf_counter()
        on_worker(lambda: chat.run(tokens))
        seconds = time.perf_counter() - began
        if not chat.failure:
            chat.check()
        return _result(chat, tokens, seconds)


def _result(chat: _Chat, tokens: int, seconds: float) -> Result:
    kinds = Counter(found.strategy for found in chat.outcomes)
    told = ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common())
    details: dict[str, Any] = {
        "note": f"{len(chat.ids):,} messages, {len(chat.outcomes)} compactions ({told}) in"
        f" {seconds:.0f} s; every original is readable, once and in order",
        "failure": chat.failure,
    }
    return Result(
        f"chat of {tokens:,} tokens in a window of {chat.window:,}: least share freed",
        chat.least_freed(chat.sizes.count((), _PROMPT)), "ratio", MIN_FREED_SHARE,
        at_least=True, **details,
    )  # fmt: skip

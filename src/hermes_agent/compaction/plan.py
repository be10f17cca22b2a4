"""The plan of a compaction: when it is due, how many tokens each part gets, and which blocks stay."""

from collections.abc import Sequence
from typing import NamedTuple

from hermes_agent.compaction.transcript import Block, original_id
from hermes_agent.tokens import Estimator
from hermes_core.settings import CompactionSettings

MIN_FREED_SHARE = 0.2
"""A pass that does not reach the target must free at least this part of the conversation."""

_MIN_ROOM = 600
"""Tokens for the conversation even when the prompt leaves next to nothing."""
_MAX_SUMMARY = 6_000
_HEAD_SHARE, _SUMMARY_SHARE, _TAIL_SHARE = 0.15, 0.3, 0.5
_CLEAR_OF_LIMIT = 0.8
"""A pass above the target must end below this part of the limit, or it would be due again at once."""


def limit_of(window: int, max_output: int, settings: CompactionSettings) -> int:
    """Return the size at which compaction is due: the threshold, or what the reply leaves."""
    return int(min(settings.threshold * window, window - min(max_output, window // 4)))


def needed(estimate: int, window: int, max_output: int, settings: CompactionSettings) -> bool:
    """Tell whether a request of this size must be compacted before it is sent."""
    return settings.enabled and estimate >= limit_of(window, max_output, settings)


def reply_room(estimate: int, window: int, max_output: int) -> int:
    """Return how long a reply may be: what the model can write, within what the request leaves."""
    return max(min(max_output, window - estimate - window // 50), min(256, max_output))


class Limits(NamedTuple):
    """Sizes in tokens; `limit` and `target` include the overhead, the others do not."""

    overhead: int
    """The system prompt and the tools."""
    limit: int
    """Where compaction starts."""
    room: int
    """What the conversation may take afterwards."""
    head: int
    summary: int
    tail: int

    @property
    def target(self) -> int:
        """Return the size that compaction aims at."""
        return self.overhead + self.room

    def is_enough(self, before: int, after: int) -> bool:
        """Tell whether a pass freed enough not to be due again at once."""
        if after <= self.target:
            return True
        share = (before - after) / max(before - self.overhead, 1)
        return share >= MIN_FREED_SHARE and after <= _CLEAR_OF_LIMIT * self.limit


def limits_of(
    *, overhead: int, history: int, window: int, limit: int, tail: float, target_share: float
) -> Limits:
    """Divide the room; a conversation below the limit is compacted in proportion to its own size."""
    available = min(max(limit - overhead, 2 * _MIN_ROOM), max(history, 2 * _MIN_ROOM))
    room = max(int(available * target_share), _MIN_ROOM)
    return Limits(
        overhead=overhead,
        limit=limit,
        room=room,
        head=int(room * _HEAD_SHARE),
        summary=min(int(room * _SUMMARY_SHARE), _MAX_SUMMARY),
        tail=min(int(window * tail), int(room * _TAIL_SHARE)),
    )


class Split(NamedTuple):
    """The blocks of a conversation by what happens to them."""

    head: list[Block]
    """The first exchange."""
    summaries: list[Block]
    """Summaries of earlier compactions."""
    middle: list[Block]
    """Blocks that the new summary will replace."""
    requests: list[Block]
    """Unanswered requests before the tail."""
    tail: list[Block]
    """The most recent blocks, without a gap."""
    in_flight: frozenset[int]
    """The original ids of unanswered requests and of the last step."""

    def is_in_flight(self, block: Block) -> bool:
        """Tell whether a block belongs to work that has not ended."""
        return original_id(block.first) in self.in_flight


def split(blocks: Sequence[Block], limits: Limits, sizes: Estimator, answering: int = 0) -> Split:
    """Put every block into exactly one part.

    `answering` is the id of the message that the running turn answers, if there is one.
    """
    in_flight = _in_flight(blocks, answering)
    start = _tail_start(blocks, in_flight, limits.tail, sizes)
    head = _first_exchange(blocks, start)
    summaries: list[Block] = []
    middle: list[Block] = []
    requests: list[Block] = []
    for position, block in enumerate(blocks[:start]):
        if position in head:
            continue
        part = summaries if block.is_summary else requests if position in in_flight else middle
        part.append(block)
    tail = [block for block in blocks[start:] if not block.is_summary]
    summaries += [block for block in blocks[start:] if block.is_summary]
    return Split(
        [blocks[position] for position in head],
        summaries,
        middle,
        requests,
        tail,
        frozenset(original_id(blocks[position].first) for position in in_flight),
    )


def only_requests(split: Split, answering: int) -> list[Split]:
    """Return two smaller splits: with only the unanswered requests, and with only one message.

    The one message is the one that is being answered, or else the last.
    """
    everything = [*split.head, *split.middle, *split.requests, *split.tail]
    requests = [block for block in everything if block.is_request]
    unanswered = [block for block in requests if split.is_in_flight(block)]
    current = [block for block in requests if original_id(block.first) == answering]
    return [
        split._replace(
            head=[],
            middle=[block for block in everything if block not in tail],
            requests=[],
            tail=tail,
        )
        for tail in (unanswered, (current or requests)[-1:])
    ]


def _in_flight(blocks: Sequence[Block], answering: int) -> set[int]:
    """Return the positions of unanswered requests, the last request, step and block."""
    answers = [position for position, block in enumerate(blocks) if block.is_answer]
    last_answer = answers[-1] if answers else -1
    requests = [position for position, block in enumerate(blocks) if block.is_request]
    steps = [position for position, block in enumerate(blocks) if block.is_step]
    found = {
        position
        for position in requests
        if position > last_answer or original_id(blocks[position].first) == answering
    }
    found |= set(requests[-1:])
    if steps and steps[-1] > last_answer:
        found.add(steps[-1])
    if blocks and not blocks[-1].is_summary:
        found.add(len(blocks) - 1)
    return found


def _tail_start(blocks: Sequence[Block], in_flight: set[int], budget: int, sizes: Estimator) -> int:
    """Return the position where the tail starts, so that it fits together with what is in flight."""
    room = budget - sum(block_size(blocks[position], sizes) for position in in_flight)
    start = len(blocks)
    while start > 0:
        block = blocks[start - 1]
        if start - 1 not in in_flight and not block.is_summary:
            room -= block_size(block, sizes)
            if room < 0:
                break
        start -= 1
    return start


def _first_exchange(blocks: Sequence[Block], end: int) -> list[int]:
    """Return the positions of the first request and its answer, unless they are in the tail."""
    requests = [position for position, block in enumerate(blocks) if block.is_request]
    if not requests or requests[0] >= end:
        return []
    first = requests[0]
    until = requests[1] if len(requests) > 1 else len(blocks)
    answers = [p for p in range(first + 1, min(until, end)) if blocks[p].is_answer]
    return [first, *answers[:1]]


def block_size(block: Block, sizes: Estimator) -> int:
    """Return the tokens of a block."""
    return sum(sizes.message(entry.message) for entry in block.entries)

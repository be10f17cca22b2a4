"""The plan of a compaction: how much room there is for what, and which blocks stay as they are."""

from collections.abc import Sequence
from typing import NamedTuple

from hermes_agent.compaction.transcript import Block, number
from hermes_agent.tokens import Estimator
from hermes_core.settings import CompactionSettings

SHARE = 0.2
"""A pass that does not reach the target must free at least this much of the conversation."""

_LEAST_ROOM = 600
"""Tokens for the conversation when the prompt leaves next to nothing: less would say nothing."""
_MOST_SUMMARY = 6_000
_HEAD_SHARE, _SUMMARY_SHARE, _TAIL_SHARE = 0.15, 0.3, 0.5
_CALM = 0.8


def limit_of(window: int, max_output: int, settings: CompactionSettings) -> int:
    """The tokens at which a conversation is shortened: the threshold, or what the reply leaves."""
    return int(min(settings.threshold * window, window - min(max_output, window // 4)))


def needed(estimate: int, window: int, max_output: int, settings: CompactionSettings) -> bool:
    """Whether a request of this size is to be shortened before it is sent."""
    return settings.enabled and estimate >= limit_of(window, max_output, settings)


def reply_room(estimate: int, window: int, max_output: int) -> int:
    """The tokens a reply may have: what the model can, less what the request takes of the window."""
    return max(min(max_output, window - estimate - window // 50), min(256, max_output))


class Limits(NamedTuple):
    """Tokens, with the prompt and the tools (`overhead`) where it says so."""

    overhead: int
    limit: int
    """With overhead: where compaction starts."""
    room: int
    """Without: what the conversation may take afterwards."""
    head: int
    summary: int
    tail: int

    @property
    def target(self) -> int:
        """With overhead: where compaction should end."""
        return self.overhead + self.room

    def is_enough(self, before: int, after: int) -> bool:
        """Whether a pass freed its share and does not have to be repeated at once."""
        if after <= self.target:
            return True
        freed = before - after
        return freed >= SHARE * max(before - self.overhead, 1) and after <= _CALM * self.limit


def limits_of(
    *, overhead: int, history: int, window: int, limit: int, tail: float, target_share: float
) -> Limits:
    """Room for each part. A conversation below the limit is shortened in proportion to itself."""
    available = min(max(limit - overhead, 2 * _LEAST_ROOM), max(history, 2 * _LEAST_ROOM))
    room = max(int(available * target_share), _LEAST_ROOM)
    return Limits(
        overhead=overhead,
        limit=limit,
        room=room,
        head=int(room * _HEAD_SHARE),
        summary=min(int(room * _SUMMARY_SHARE), _MOST_SUMMARY),
        tail=min(int(window * tail), int(room * _TAIL_SHARE)),
    )


class Split(NamedTuple):
    """What becomes of the blocks."""

    head: list[Block]
    """The first exchange."""
    summaries: list[Block]
    """What stood in for earlier messages until now."""
    middle: list[Block]
    """What the summary will stand in for."""
    requests: list[Block]
    """What a person said and waits for an answer to, when it is not in the tail."""
    tail: list[Block]
    """The most recent blocks, without a gap."""
    fixed: frozenset[int]
    """The numbers of messages in flight: what waits for an answer, and the last step."""

    def is_fixed(self, block: Block) -> bool:
        return number(block.first) in self.fixed


def split(blocks: Sequence[Block], limits: Limits, sizes: Estimator, answering: int = 0) -> Split:
    """Decide which blocks stay. Every block is in exactly one part.

    `answering` is the number of the message that the running turn answers, if one runs.
    """
    fixed = _in_flight(blocks, answering)
    start = _tail_start(blocks, fixed, limits.tail, sizes)
    head = _first_exchange(blocks, start)
    summaries: list[Block] = []
    middle: list[Block] = []
    requests: list[Block] = []
    for position, block in enumerate(blocks[:start]):
        if position in head:
            continue
        part = summaries if block.is_summary else requests if position in fixed else middle
        part.append(block)
    tail = [block for block in blocks[start:] if not block.is_summary]
    summaries += [block for block in blocks[start:] if block.is_summary]
    return Split(
        [blocks[position] for position in head],
        summaries,
        middle,
        requests,
        tail,
        frozenset(number(blocks[position].first) for position in fixed),
    )


def only_requests(split: Split, answering: int) -> list[Split]:
    """The same blocks when only what waits for an answer has room, and when only one message has:
    the one that is being answered, or else the last.
    """
    everything = [*split.head, *split.middle, *split.requests, *split.tail]
    requests = [block for block in everything if block.is_request]
    waiting = [block for block in requests if split.is_fixed(block)]
    answered = [block for block in requests if number(block.first) == answering]
    return [
        Split([], split.summaries, [b for b in everything if b not in kept], [], kept, split.fixed)
        for kept in (waiting, (answered or requests)[-1:])
    ]


def _in_flight(blocks: Sequence[Block], answering: int) -> set[int]:
    """The open requests, the last one in any case, and the last block unless it is a summary."""
    answers = [position for position, block in enumerate(blocks) if block.is_answer]
    since = answers[-1] if answers else -1
    requests = [position for position, block in enumerate(blocks) if block.is_request]
    steps = [position for position, block in enumerate(blocks) if block.is_step]
    fixed = {
        position
        for position in requests
        if position > since or number(blocks[position].first) == answering
    }
    fixed |= set(requests[-1:])
    if steps and steps[-1] > since:
        fixed.add(steps[-1])
    if blocks and not blocks[-1].is_summary:
        fixed.add(len(blocks) - 1)
    return fixed


def _tail_start(blocks: Sequence[Block], fixed: set[int], budget: int, sizes: Estimator) -> int:
    left = budget - sum(block_size(blocks[position], sizes) for position in fixed)
    start = len(blocks)
    while start > 0:
        block = blocks[start - 1]
        if start - 1 not in fixed and not block.is_summary:
            left -= block_size(block, sizes)
            if left < 0:
                break
        start -= 1
    return start


def _first_exchange(blocks: Sequence[Block], end: int) -> list[int]:
    """The first request and the answer to it, if they are not in the tail anyway."""
    requests = [position for position, block in enumerate(blocks) if block.is_request]
    if not requests or requests[0] >= end:
        return []
    first = requests[0]
    until = requests[1] if len(requests) > 1 else len(blocks)
    answers = [p for p in range(first + 1, min(until, end)) if blocks[p].is_answer]
    return [first, *answers[:1]]


def block_size(block: Block, sizes: Estimator) -> int:
    """The tokens of a block."""
    return sum(sizes.message(entry.message) for entry in block.entries)

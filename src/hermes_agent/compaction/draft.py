"""The draft of a new session: what it begins with, and whether that is small enough."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hermes_agent.compaction import shrink
from hermes_agent.compaction.plan import Limits, Split, block_size
from hermes_agent.compaction.summary import Summary
from hermes_agent.compaction.transcript import Block, entries, number
from hermes_agent.tokens import Estimator
from hermes_state.values import Carried, Row

Strategy = Literal["shrink", "summary", "digest", "cut"]

_OPENING = re.compile(r"\A\[Summary of messages (?P<first>\d+)[–-](?P<last>\d+)[^\]]*\]\s*")


class Note(NamedTuple):
    """The message that stands in for others."""

    text: str
    first: int
    last: int

    @property
    def message(self) -> dict[str, Any]:
        return {"role": "user", "content": self.text, "summary_of": [self.first, self.last]}


class Draft(NamedTuple):
    """What the new session begins with, in order: blocks, the note, blocks."""

    strategy: Strategy
    head: Sequence[Block]
    note: Note | None
    rest: Sequence[Block]

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages as a model will see them."""
        note = [self.note.message] if self.note else []
        before, after = entries(self.head), entries(self.rest)
        return [*(e.message for e in before), *note, *(e.message for e in after)]

    @property
    def carried(self) -> list[Carried]:
        """The messages as the store takes them over."""
        note = [self.note.message] if self.note else []
        before, after = entries(self.head), entries(self.rest)
        return [*(e.carried for e in before), *note, *(e.carried for e in after)]


def note_of(summary: Summary, split: Split) -> Note:
    """The note for everything that does not stay, and for what earlier notes stood for."""
    numbers = [number(entry.row) for entry in entries(split.middle)]
    spans = [span for block in split.summaries if (span := span_of(block.first)) is not None]
    first = min([*numbers, *(span[0] for span in spans)], default=0)
    last = max([*numbers, *(span[1] for span in spans)], default=0)
    text = f"[Summary of messages {first}–{last}. They are kept; /expand {first}-{last} shows them."
    after = (number(block.first) for block in (*split.requests, *split.tail) if block.is_request)
    if asked := [str(one) for one in after if one < last]:
        text += f" Message {', '.join(asked)} below was said before some of what is told here."
    return Note(f"{text}]\n\n{summary.text}".rstrip(), first, last)


def span_of(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """The messages that a stored summary stands for; None for one that we did not write."""
    opening = _OPENING.match(str(row.get("content") or ""))
    return None if opening is None else (int(opening["first"]), int(opening["last"]))


def body_of(row: Row) -> str:
    """What a stored summary says, without its opening."""
    return _OPENING.sub("", str(row.get("content") or ""))


def shrunk(blocks: Sequence[Block], split: Split, sizes: Estimator) -> Draft:
    """Everything stays; what tools put out before the tail is cut to a few lines."""
    old = {number(block.first) for block in (*split.head, *split.middle)} - split.fixed
    kept = [
        shrink.shrink_outputs([block], sizes)[0] if number(block.first) in old else block
        for block in blocks
    ]
    return Draft("shrink", [], None, kept)


def around(
    strategy: Strategy, note: Note | None, split: Split, limits: Limits, sizes: Estimator
) -> Draft | None:
    """First exchange, note, open requests and tail, in the room there is.

    What is in flight stays word for word as far as it fits, then its tool outputs give way, then all of
    it. None when that would leave nothing readable.
    """
    left = limits.room - (sizes.message(note.message) if note else 0)
    opening = [block for block in split.head if not split.is_fixed(block)]
    head = shrink.fit(opening, limits.head, sizes) or []
    after = [*split.requests, *split.tail]
    loose = [block for block in after if not split.is_fixed(block)]
    left -= sum(block_size(block, sizes) for block in (*head, *loose))
    in_flight = [block for block in (*split.head, *after) if split.is_fixed(block)]
    fitted = shrink.fit(in_flight, left, sizes)
    if fitted is None:
        return None
    placed = {number(block.first): block for block in (*head, *loose, *fitted)}
    return Draft(
        strategy,
        [placed[key] for block in split.head if (key := number(block.first)) in placed],
        note,
        [placed[number(block.first)] for block in after],
    )


def least(note: Note | None, split: Split, limits: Limits, sizes: Estimator) -> Draft:
    """The note and the tail, cut to the room there is; with one message in the tail this always fits."""
    left = limits.room - (sizes.message(note.message) if note else 0)
    kept = shrink.fit(split.tail, left, sizes) or [
        Block((shrink.cut_entry(entry, left, sizes),)) for entry in entries(split.tail)
    ]
    return Draft("cut", [], note, kept)

"""The digest: a summary made without a model, from what people asked and how answers began."""

import re
from collections import Counter
from collections.abc import Sequence

from hermes_agent.compaction import summary
from hermes_agent.compaction.identifiers import FILES
from hermes_agent.compaction.material import Material
from hermes_agent.compaction.summary import Summary
from hermes_agent.compaction.transcript import Block, calls_of, entries, text_of
from hermes_agent.tokens import Estimator
from hermes_core.text import truncate

_LINE = 200
_MOST_FILES = 40
_IDENTIFIERS_SHARE = 0.25
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")


def make(material: Material, budget: int, sizes: Estimator) -> Summary:
    """What is known of a conversation without understanding it, after what was known before."""
    blocks, wanted, old = material.blocks, material.identifiers, material.notes.sections
    asked = [_opening(block) for block in blocks if block.is_request]
    began = [_opening(block) for block in material.opening if block.is_request]
    concluded = [_opening(block) for block in blocks if block.is_answer]
    found = summary.of(
        goal=old["goal"] or began or asked[:1],
        decisions=[*old["decisions"], *concluded],
        facts=[*old["facts"], *(f"Asked: {line}" for line in asked if line), *_used(blocks)],
        files=[*old["files"], *wanted.ranked(FILES)[:_MOST_FILES]],
        open=old["open"],
        next=old["next"],
    )
    kept = int(budget * _IDENTIFIERS_SHARE)
    fitted = summary.fit(found, budget - kept, sizes)
    return summary.keep_identifiers(fitted, wanted.ranked(), kept // 2, sizes)


def _opening(block: Block) -> str:
    """The first line of a message that says something, to the end of its first sentence."""
    text = text_of(block.entries[0].message.get("content"))
    line = next((line for line in text.splitlines() if any(map(str.isalnum, line))), "")
    return truncate(_SENTENCE.split(line.strip(), 1)[0], _LINE)


def _used(blocks: Sequence[Block]) -> list[str]:
    """Which tools were used, how often."""
    counts = Counter(name for entry in entries(blocks) for name, _ in calls_of(entry.message))
    if not counts:
        return []
    return ["Tools used: " + ", ".join(f"{name} × {n}" for name, n in sorted(counts.items()))]

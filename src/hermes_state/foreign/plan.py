"""Determine how sessions of hermes-agent are linked, as it has only one parent column."""

from collections.abc import Mapping
from typing import NamedTuple

from hermes_state.foreign.rows import fields
from hermes_state.foreign.source import Head

_MARKED_SINCE = 16
"""Older schemas do not mark delegates; a child without another relation is one."""

_DELEGATE_SOURCES = ("tool", "subagent")


class Link(NamedTuple):
    """The relation of a session to its parent."""

    parent: str
    relation: str


class Plan(NamedTuple):
    """The order in which to import sessions, and their links."""

    conversations: list[list[str]]
    """Chains of continuations, oldest first; parents precede their children."""
    links: dict[str, Link]
    detached: list[str]
    """Sessions whose parent is missing or is their own descendant."""


def plan(heads: Mapping[str, Head], version: int) -> Plan:
    """Sort sessions into conversations."""
    parents, detached = _parents(heads)
    links = {
        child: Link(parent, _relation(heads[child], heads[parent], version))
        for child, parent in parents.items()
    }
    heirs = _heirs(heads, links)
    for child, link in links.items():
        if link.relation == "continuation" and heirs[link.parent] != child:
            # A second continuation becomes a conversation of its own.
            links[child] = Link(link.parent, "branch")
    levels = _levels(heads, parents)
    roots = [id_ for id_ in heads if id_ not in links or links[id_].relation != "continuation"]
    roots.sort(
        key=lambda id_: levels[id_]
    )  # stable: sessions of one level stay in the order of their start
    return Plan([_line(root, heirs) for root in roots], links, detached)


def _parents(heads: Mapping[str, Head]) -> tuple[dict[str, str], list[str]]:
    """Return the parent of each session, without cycles, and the sessions that were detached."""
    parents: dict[str, str] = {}
    detached: list[str] = []
    for head in heads.values():
        if head.parent is not None and head.parent in heads:
            parents[head.id] = head.parent
        elif head.parent is not None:
            detached.append(head.id)
    settled: set[str] = set()
    for start in heads:
        line: list[str] = []
        here: str | None = start
        while here is not None and here not in settled:
            settled.add(here)
            line.append(here)
            here = parents.get(here)
        if here in line:
            # `heads` is in the order of start: a cycle is cut at its first session.
            circle = set(line[line.index(here) :])
            first = next(id_ for id_ in heads if id_ in circle)
            del parents[first]
            detached.append(first)
    return parents, detached


def _relation(child: Head, parent: Head, version: int) -> str:
    marks = fields(child.model_config) or {}
    if marks.get("_delegate_from") or child.source in _DELEGATE_SOURCES:
        return "delegate"
    if marks.get("_branched_from") or parent.end_reason == "branched":
        return "branch"
    if parent.end_reason == "compression":
        return "continuation"
    return "delegate" if version < _MARKED_SINCE else "branch"


def _heirs(heads: Mapping[str, Head], links: Mapping[str, Link]) -> dict[str, str]:
    """Return the one session that continues each compacted session."""
    candidates: dict[str, list[Head]] = {}
    for child, link in links.items():
        if link.relation == "continuation":
            candidates.setdefault(link.parent, []).append(heads[child])
    return {parent: max(found, key=_claim).id for parent, found in candidates.items()}


def _claim(head: Head) -> tuple[bool, bool, float, str]:
    """Rank candidates for a continuation: compacted itself, open, used last."""
    active_at = head.active_at if isinstance(head.active_at, float | int) else 0.0
    return head.end_reason == "compression", head.ended_at is None, active_at, head.id


def _levels(heads: Mapping[str, Head], parents: Mapping[str, str]) -> dict[str, int]:
    """Return the depth of each session."""
    levels: dict[str, int] = {}
    for start in heads:
        line: list[str] = []
        here: str | None = start
        while here is not None and here not in levels:
            line.append(here)
            here = parents.get(here)
        level = -1 if here is None else levels[here]
        for id_ in reversed(line):
            level += 1
            levels[id_] = level
    return levels


def _line(root: str, heirs: Mapping[str, str]) -> list[str]:
    line = [root]
    while (heir := heirs.get(line[-1])) is not None:
        line.append(heir)
    return line

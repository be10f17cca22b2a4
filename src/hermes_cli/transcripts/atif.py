"""Conversations in the Agent Trajectory Interchange Format (ATIF) of the Harbor project.

Its fields are those of version 1.7 of the specification, RFC 0001 of Harbor. Pictures are named only:
the format keeps them in files of their own.
"""

from typing import Any

from hermes_cli.transcripts.transcript import Call, Entry, Transcript
from hermes_core import clock
from hermes_core.text import human_size
from hermes_core.version import VERSION

SCHEMA = "ATIF-v1.7"
_SOURCES = {"user": "user", "assistant": "agent"}
Json = dict[str, Any]


def trajectory(transcript: Transcript) -> Json:
    """Return a conversation as a trajectory."""
    row, spent = transcript.session, transcript.usage
    model = {"model_name": row["model"]} if row["model"] else {}
    steps = [_step(number, entry) for number, entry in enumerate(transcript.entries, 1)]
    return {
        "schema_version": SCHEMA,
        "session_id": row["conversation_id"],
        "trajectory_id": row["id"],
        "agent": {"name": "hermes", "version": VERSION, **model},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": spent["input_tokens"],
            "total_completion_tokens": spent["output_tokens"],
            "total_cached_tokens": spent["cache_read_tokens"],
            "total_cost_usd": spent["cost_usd"],
            "total_steps": len(steps),
        },
        "extra": {"title": transcript.title, "source": row["source"]},
    }


def _step(number: int, entry: Entry) -> Json:
    source = _SOURCES.get(entry.role, "system")
    step: Json = {
        "step_id": number,
        "timestamp": f"{clock.date(entry.at):%Y-%m-%dT%H:%M:%S.%fZ}",
        "source": source,
        "message": "\n".join([*([entry.text] if entry.text else []), *_pictures(entry)]),
    }
    if source == "agent" and entry.reasoning:
        step["reasoning_content"] = entry.reasoning
    if source == "agent" and entry.calls:
        step |= _calls(number, entry.calls)
    if entry.is_copy:
        step["is_copied_context"] = True
    if entry.is_partial:
        step["extra"] = {"is_cut_off": True}
    return step


def _calls(number: int, calls: list[Call]) -> Json:
    """Return the tool calls of a step and their results, which name them by their ids."""
    ids = [call.id or f"call_{number}_{place}" for place, call in enumerate(calls, 1)]
    named = list(zip(ids, calls, strict=True))
    found: Json = {
        "tool_calls": [
            {"tool_call_id": id_, "function_name": call.name, "arguments": call.arguments}
            for id_, call in named
        ]
    }
    results = [{"source_call_id": i, "content": c.result} for i, c in named if c.is_answered]
    return {**found, "observation": {"results": results}} if results else found


def _pictures(entry: Entry) -> list[str]:
    return [
        f"[Picture: {picture.media_type}, {human_size(len(picture.data))}]"
        for picture in entry.pictures
    ]

"""The contract of the hooks: which there are, what they give, and that each is described."""

import inspect

import pytest

from hermes_cli import hookspecs

EVERY_HOOK = [
    "on_session_start",
    "on_session_end",
    "on_session_finalize",
    "on_session_lost",
    "on_session_reset",
    "pre_compaction",
    "post_compaction",
    "on_turn_start",
    "on_turn_end",
    "pre_model_call",
    "post_model_call",
    "pre_tool_call",
    "post_tool_call",
    "on_approval_asked",
    "on_approval_answered",
    "on_message_received",
    "pre_send",
    "on_gateway_start",
    "on_gateway_stop",
]


def arguments(hook: str) -> list[str]:
    return list(inspect.signature(hookspecs.SPECS[hook]).parameters)


def test_the_page_holds_every_hook_and_nothing_else() -> None:
    assert list(hookspecs.SPECS) == EVERY_HOOK


def test_the_pinned_hooks_give_exactly_the_pinned_arguments() -> None:
    assert arguments("on_session_end") == [
        "session_id",
        "completed",
        "interrupted",
        "model",
        "platform",
    ]
    assert arguments("on_session_finalize") == ["session_id", "platform"]
    assert arguments("on_session_reset") == ["session_id", "platform"]


@pytest.mark.parametrize("hook", ["pre_compaction", "post_compaction"])
def test_compaction_gives_both_ids(hook: str) -> None:
    assert {"old_session_id", "new_session_id"} <= set(arguments(hook))


@pytest.mark.parametrize("hook", EVERY_HOOK)
def test_a_hook_says_when_it_fires_what_it_gives_and_what_a_result_does(hook: str) -> None:
    when, *_, outcome = inspect.cleandoc(hookspecs.SPECS[hook].__doc__ or "").split("\n\n")
    described = [line.partition(":")[0] for line in inspect.cleandoc(_text(hook)).splitlines()]
    assert when
    assert [name for name in arguments(hook) if name not in described] == []
    acts = inspect.signature(hookspecs.SPECS[hook]).return_annotation is not None
    assert outcome.startswith("May ") if acts else outcome.startswith("Observer:")


def _text(hook: str) -> str:
    return hookspecs.SPECS[hook].__doc__ or ""

"""Prompts: submitted, and those that wait."""

from contextlib import suppress
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from hermes_protocol.errors import BAD_ARGUMENT, BUSY
from hermes_state.ledger import turns as turn_ledger
from tui_gateway import attachment, intake, line, rewinding, turns
from tui_gateway.params import Session, says
from tui_gateway.protocol import Rid, RpcError
from tui_gateway.runtime import LiveSession, Runtime, Steering

_LONGEST = 4_000_000


class Submit(Session, frozen=True):
    """Something to be answered."""

    text: Annotated[str, says("What the person says.")] = ""
    truncate_before_user_ordinal: Annotated[
        Any, says("Take back the user message with this number, counted from 0, and all after it.")
    ] = None
    idempotency_key: Annotated[
        str, says("A name for this prompt: sent again under it, it is found, not repeated.")
    ] = ""
    images: Annotated[
        tuple[str, ...], says("Files of pictures that go along, beside those attached before.")
    ] = ()
    busy: Annotated[
        Literal["", "queue", "steer", "interrupt"],
        says("What happens while a turn runs; empty: what the setting terminal.busy says."),
    ] = ""
    waits_for_model: Annotated[
        bool, says("Without a model, wait until `model.pull` has fetched the one that is offered.")
    ] = False


def submit(rt: Runtime, rid: Rid, params: Submit) -> dict[str, Any] | None:
    """Have a prompt answered. It is answered here when the prompt is on disk, not before.

    `{status, turn_id}`: `streaming` when its turn begins now; `queued` when it waits. By the setting
    terminal.busy it may be said to the running turn instead and is answered as `session.steer` is. A key
    that is known answers with `duplicate: true` and where that prompt stands.
    """
    sid, session = params.session_id, rt.session(params.session_id)
    live, key = rt.live(session), params.idempotency_key or None
    with live.accepting:  # what is attached goes along with one prompt
        images = _images(rt, session, params.images)
        _check(params.text, images)
        rt.watch(session)
        live.waits_for_model |= params.waits_for_model
        content = attachment.with_images(images, rt.home, params.text)
        replaced = _replaced(rt, session, params)
        busy = (params.busy or rt.settings.terminal.busy) if session.get("running") else ""
        if busy == "steer" and not images:
            steering = Steering(content, key, rt.later(rid))
            if intake.steer(rt, session, steering):
                return None
        if replaced is not None:
            told = rewinding.submit_instead(rt, sid, session, content, replaced, key)
        else:
            told = intake.submit(rt, sid, session, content, key)
        if not told.get("duplicate"):
            _let_go(session, images)
    if busy == "interrupt" and told["status"] == "queued":
        turns.interrupt(rt, session, drops_queue=False)
    return told


def _replaced(rt: Runtime, session: LiveSession, params: Submit) -> int | None:
    """The message that a prompt replaces; one that is known has done so before."""
    ordinal, key = params.truncate_before_user_ordinal, params.idempotency_key
    if ordinal is None or (key and rt.db().read(turn_ledger.known, key) is not None):
        return None
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise RpcError(BAD_ARGUMENT, "truncate_before_user_ordinal has to be a whole number.")
    return rewinding.request(rt, session, ordinal)


def _images(rt: Runtime, session: LiveSession, given: tuple[str, ...]) -> list[str]:
    attached = session.get("attached_images") or []
    named = [str(attachment.named(name, rt.live(session).cwd)) for name in given]
    return list(dict.fromkeys([*attached, *named]))


def _let_go(session: LiveSession, images: list[str]) -> None:
    """What went along with a prompt is not attached any more; what came meanwhile is."""
    attached = session.get("attached_images") or []
    for image in images:
        with suppress(ValueError):
            attached.remove(image)


def _check(text: str, images: list[str]) -> None:
    if not text.strip() and not images:
        raise RpcError(BAD_ARGUMENT, "There is nothing to answer.")
    if len(text) > _LONGEST:
        raise RpcError(
            BAD_ARGUMENT,
            f"{len(text)} characters are too many for a prompt.",
            fix="Put the text into a file and name the file.",
        )


class Queue(TypedDict):
    """Prompts that wait, in their order."""

    queued: list[line.Prompt]


def queue(rt: Runtime, rid: Rid, params: Session) -> Queue:
    """The prompts that wait for their turn."""
    del rid
    return {"queued": line.queued(rt.live(rt.session(params.session_id)))}


class Unqueue(Session, frozen=True):
    """A prompt that waits."""

    turn_id: Annotated[str, says("Its turn, as `prompt.submit` told it.")]


class Unqueued(TypedDict):
    """What was taken out: its words, and the files of the pictures that went along."""

    text: str
    images: NotRequired[list[str]]


def unqueue(rt: Runtime, rid: Rid, params: Unqueue) -> Unqueued:
    """Take a prompt back that waits; it ends as interrupted."""
    del rid
    live = rt.live(rt.session(params.session_id))
    with live.lock:
        found = next((one for one in live.queue if one.turn_id == params.turn_id), None)
        if found is None:
            raise RpcError(BUSY, "This prompt does not wait any more.")
        live.queue.remove(found)
    turns.withdraw(rt, found)
    line.tell(rt, live)
    given = line.prompt(found)
    images = given.get("images")
    return {"text": given["text"], "images": images} if images else {"text": given["text"]}

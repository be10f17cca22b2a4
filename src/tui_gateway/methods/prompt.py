"""Submit prompts and list queued ones."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from hermes_agent.approval import taint
from hermes_agent.approval.danger import places
from hermes_core.paths import Home
from hermes_protocol.errors import BAD_ARGUMENT, BUSY
from hermes_protocol.results import Queue
from hermes_state.ledger import turns as turn_ledger
from hermes_state.values import TaintSource
from tui_gateway import attachment, info, mentions, prompts, undo
from tui_gateway import queue as queues
from tui_gateway.params import Session, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

_MAX_CHARS = 4_000_000


class Submit(Session, frozen=True):
    """A prompt."""

    text: Annotated[str, says("The text of the prompt.")] = ""
    truncate_before_user_ordinal: Annotated[
        Any, says("Undo the user message with this number, counted from 0, and all later ones.")
    ] = None
    idempotency_key: Annotated[
        str, says("A key for this prompt; a repeat with the same key does not run again.")
    ] = ""
    images: Annotated[
        tuple[str, ...], says("Picture files, in addition to those attached before.")
    ] = ()
    files: Annotated[
        tuple[str, ...],
        says(
            "Files and folders that the text names; the model gets them too. Pictures are attached."
        ),
    ] = ()
    busy: Annotated[
        Literal["", "queue", "steer", "interrupt"],
        says("How to handle the prompt during a turn; empty: as the setting terminal.busy says."),
    ] = ""
    waits_for_model: Annotated[
        bool, says("Without a model, wait until `model.pull` has downloaded the offered one.")
    ] = False


def submit(rt: Runtime, params: Submit) -> dict[str, Any] | None:
    """Submit a prompt; returns when it is on disk.

    Returns `{status, turn_id}`: `streaming` if its turn begins now, `queued` if others come first. With
    `terminal.busy` set to steer, the result is that of `session.steer`. For a known key the result has
    `duplicate: true` and the state of that prompt.
    """
    session = rt.session(params.session_id)
    live, key = rt.live(session), params.idempotency_key or None
    with live.lock:  # a picture goes along with one prompt
        cwd = live.cwd
        pictures, files = _divide(params.files, cwd)
        images = _images(rt, session, (*params.images, *pictures))
        _check(params.text, images)
        text = mentions.with_files(params.text, files, cwd)
        brings = _taint(params.files, cwd, rt.home)
        rt.watch(session)
        live.waits_for_model |= params.waits_for_model
        content = attachment.with_images(images, rt.home, text)
        replaced = _replaced(rt, session, params)
        busy = ""
        if info.is_running(rt, session):
            busy = params.busy or rt.settings.terminal.busy
        if (
            busy == "steer"
            and not images
            and text == params.text
            and prompts.steer(rt, session, content, rt.defer_answer(), key)
        ):
            return None
        if replaced is not None:
            answer = undo.resubmit(rt, session, content, replaced, key, brings)
        else:
            answer = prompts.submit(rt, session, content, key, brings=brings)
        if not answer.get("duplicate"):
            _detach(session, images)
    if busy == "interrupt" and answer["status"] == "queued":
        prompts.interrupt(rt, session, cancels_queue=False)
    return answer


def _replaced(rt: Runtime, session: LiveSession, params: Submit) -> int | None:
    """Return the message that a prompt replaces; None if a known prompt has replaced it already."""
    ordinal, key = params.truncate_before_user_ordinal, params.idempotency_key
    if ordinal is None or (key and rt.db().read(turn_ledger.find_by_key, key) is not None):
        return None
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise RpcError(BAD_ARGUMENT, "truncate_before_user_ordinal must be an integer.")
    return undo.request(rt, session, ordinal)


def _images(rt: Runtime, session: LiveSession, names: tuple[str, ...]) -> list[str]:
    attached = session.get("attached_images") or []
    files = [str(attachment.named(name, rt.live(session).cwd)) for name in names]
    return list(dict.fromkeys([*attached, *files]))


def _taint(names: Iterable[str], cwd: Path, home: Home) -> list[TaintSource]:
    """Return what a conversation has read when named files have been attached to it."""
    place = places.place_of(cwd, home.root)
    paths = filter(None, (mentions.existing(name, cwd) for name in names))
    return [
        source for path in paths for source in taint.of_path(os.path.realpath(path), place, home)
    ]


def _divide(names: tuple[str, ...], cwd: Path) -> tuple[list[str], list[str]]:
    """Divide named files into pictures and others."""
    pictures = [
        name
        for name in names
        if attachment.is_image(Path(name)) and mentions.existing(name, cwd) is not None
    ]
    return pictures, [name for name in names if name not in pictures]


def _detach(session: LiveSession, images: list[str]) -> None:
    """Detach the attachments that a prompt used; later attachments stay."""
    attached = session.get("attached_images") or []
    for image in images:
        with suppress(ValueError):
            attached.remove(image)


def _check(text: str, images: list[str]) -> None:
    if not text.strip() and not images:
        raise RpcError(BAD_ARGUMENT, "The prompt is empty.")
    if len(text) > _MAX_CHARS:
        raise RpcError(
            BAD_ARGUMENT,
            f"{len(text)} characters are too many for a prompt.",
            fix="Put the text into a file and name the file.",
        )


def queue(rt: Runtime, params: Session) -> Queue:
    """List the queued prompts."""
    return Queue(queues.queued(rt, rt.live(rt.session(params.session_id))))


class Unqueue(Session, frozen=True):
    """A queued prompt."""

    turn_id: Annotated[str, says("Its turn, as `prompt.submit` returned it.")]


class Unqueued(TypedDict):
    """The canceled prompt: its text and its picture files."""

    text: str
    images: NotRequired[list[str]]


def unqueue(rt: Runtime, params: Unqueue) -> Unqueued:
    """Cancel a queued prompt; it ends as interrupted."""
    prompt = prompts.cancel(rt, rt.session(params.session_id), params.turn_id)
    if prompt is None:
        raise RpcError(BUSY, "This prompt is not queued any more.")
    cancelled: Unqueued = {"text": prompt.text}
    if prompt.images:
        cancelled["images"] = prompt.images
    return cancelled

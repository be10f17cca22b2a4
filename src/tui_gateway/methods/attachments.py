"""Attach files and pictures to the next prompt, and detach them."""

from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

from hermes_protocol.errors import BAD_ARGUMENT
from hermes_protocol.results import Mention, Mentions
from tui_gateway import attachment, mentions
from tui_gateway.params import Session, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime


class Named(Session, frozen=True):
    """A file by its name."""

    path: Annotated[str, says("The file.")] = ""


class Attached(TypedDict):
    """An attachment, and how many pictures are attached. `remainder` is the text after its name."""

    attached: bool
    path: str
    name: str
    count: int
    remainder: NotRequired[str]


def attach_image(rt: Runtime, params: Named) -> Attached:
    """Attach a picture to the next prompt."""
    session = rt.session(params.session_id)
    cwd = rt.live(session).cwd
    found = attachment.parse_drop(params.path, cwd) or (attachment.named(params.path, cwd), "")
    path, remainder = found
    return {
        "attached": True,
        "path": str(path),
        "name": path.name,
        "count": attachment.attach(session, path),
        "remainder": remainder,
    }


class Bytes(Session, frozen=True):
    """The content of a picture."""

    filename: Annotated[str, says("Its name.")] = "image"
    content_base64: Annotated[str, says("Its bytes in base64, or a data URL.")] = ""
    data: Annotated[str, says("The same.")] = ""
    ext: Annotated[str, says("Its type, if the name has no suffix: png, jpg, gif, webp.")] = ""


def attach_image_bytes(rt: Runtime, params: Bytes) -> Attached:
    """Attach a picture that the client sends to the next prompt."""
    session = rt.session(params.session_id)
    data = attachment.decoded(params.content_base64 or params.data)
    if not data:
        raise RpcError(BAD_ARGUMENT, "The picture is empty.")
    suffix = f".{params.ext.lstrip('.')}" if params.ext else ""
    name = params.filename if params.filename.endswith(suffix) else params.filename + suffix
    kind = attachment.check_picture(name, data)
    if not attachment.is_image(Path(name)):
        name += f".{kind.removeprefix('image/')}"
    path = attachment.keep(session, rt.home, name, data)
    count = attachment.attach(session, path)
    return {"attached": True, "path": str(path), "name": path.name, "count": count}


class Detached(TypedDict):
    """The picture to detach."""

    detached: bool
    count: int


def detach_image(rt: Runtime, params: Named) -> Detached:
    """Detach a picture; without a path, all of them."""
    session = rt.session(params.session_id)
    images = session.get("attached_images") or []
    remaining = [path for path in images if params.path and path != params.path]
    session["attached_images"] = remaining
    return {"detached": len(remaining) < len(images), "count": len(remaining)}


class File(Session, frozen=True):
    """A file by its name, or its content."""

    path: Annotated[str, says("The path of the file, if the server can read it.")] = ""
    data_url: Annotated[str, says("Its content as a data URL, if the server cannot.")] = ""
    name: Annotated[str, says("Its name, with `data_url`.")] = "file"


class Reference(TypedDict):
    """The file, and how a prompt refers to it."""

    attached: bool
    path: str
    name: str
    ref: str


def attach_file(rt: Runtime, params: File) -> Reference:
    """Make a file readable for the agent; the client puts `ref` into the prompt."""
    session = rt.session(params.session_id)
    if params.data_url:
        data = attachment.decoded(params.data_url)
        path = attachment.keep(session, rt.home, params.name, data)
    else:
        path = attachment.named(params.path, rt.live(session).cwd)
    return {"attached": True, "path": str(path), "name": path.name, "ref": f"@{path}"}


class Names(Session, frozen=True):
    """Names of files and folders."""

    names: Annotated[tuple[str, ...], says("The names, as a prompt has them after an @.")] = ()


def describe_files(rt: Runtime, params: Names) -> Mentions:
    """Return what `prompt.submit` would attach for `files`; names that do not exist are left out."""
    cwd = rt.live(rt.session(params.session_id)).cwd
    files = mentions.describe(params.names, cwd)
    return Mentions([_as_picture(file) for file in files])


def _as_picture(file: Mention) -> Mention:
    """Say of a picture that it is attached as one."""
    if not attachment.is_image(Path(file.name)):
        return file
    return Mention(file.name, f"{file.note.partition(',')[0]}, picture", is_included=True)


class Text(Session, frozen=True):
    """A text of the composer."""

    text: Annotated[str, says("The text.")] = ""


class Collapsed(TypedDict):
    """The placeholder for the text in a prompt; the model gets the text itself."""

    placeholder: str
    path: str
    lines: int


def collapse(rt: Runtime, params: Text) -> Collapsed:
    """Store a long pasted text, and return a short placeholder for the composer."""
    if not params.text:
        raise RpcError(BAD_ARGUMENT, "The text is empty.")
    session = rt.session(params.session_id)
    placeholder, path, lines = attachment.collapse(session, rt.home, params.text)
    return {"placeholder": placeholder, "path": str(path), "lines": lines}


class Dropped(Text, frozen=True):
    """Text from the terminal."""

    attach: Annotated[bool, says("Attach a picture to the next prompt.")] = True


class Drop(TypedDict, total=False):
    """The dropped file, if any. `text` is its text in the prompt, `remainder` the text after its name,
    and `count` the number of attached pictures."""

    matched: bool
    is_image: bool
    path: str
    name: str
    text: str
    remainder: str
    count: int


def detect_drop(rt: Runtime, params: Dropped) -> Drop:
    """Detect whether a text names a file that was dropped on the terminal; attach a picture."""
    session = rt.session(params.session_id)
    found = attachment.parse_drop(params.text, rt.live(session).cwd)
    if found is None:
        return {"matched": False}
    path, remainder = found
    is_image = attachment.is_image(path)
    drop: Drop = {"matched": True, "is_image": is_image, "path": str(path), "name": path.name}
    mark = f"[Picture {path.name}]" if is_image else f"[File {path}]"
    drop["text"], drop["remainder"] = f"{mark} {remainder}".rstrip(), remainder
    if is_image and params.attach:
        drop["count"] = attachment.attach(session, path)
    return drop

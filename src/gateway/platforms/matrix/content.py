"""Builds the content of Matrix events from Markdown."""

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from gateway.platforms.markdown import reader

Content = dict[str, Any]

TEXT_LIMIT = 20_000
"""An event may have 65,536 bytes. Encryption makes it a third larger, and the text is in it twice."""

_MAX_CONTENT_BYTES = 44_000
_FALLBACK_LENGTH = 200
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def measure(text: str) -> int:
    """Return the bytes of a text in an event, where characters beyond ASCII are escaped."""
    return len(json.dumps(text)) - 2


def message(text: str, *, kind: str = "m.text", is_plain: bool = False) -> Content:
    """Build a message that shows Markdown, unless it is plain or the markup would not fit."""
    body = _CONTROL.sub("�", text)
    content: Content = {"msgtype": kind, "body": body}
    if is_plain:
        return content
    html = to_html(body)
    if html != f"<p>{escape(body, quote=False)}</p>":
        formatted = content | {"format": "org.matrix.custom.html", "formatted_body": html}
        content = formatted if measure_content(formatted) <= _MAX_CONTENT_BYTES else content
    return content


def edit(text: str, event_id: str) -> Content:
    """Build a new version of a message; the outer body is for clients without edits."""
    new = message(text)
    return {
        "msgtype": "m.text",
        "body": f"* {new['body'][:_FALLBACK_LENGTH]}",
        "m.new_content": new,
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }


def related(content: Content, reply_to: str | None, thread_id: str | None) -> Content:
    """Make the content a reply, put it into a thread, or both."""
    relation: Content = {}
    if thread_id:
        relation = {"rel_type": "m.thread", "event_id": thread_id, "is_falling_back": not reply_to}
    if reply_to or thread_id:
        relation["m.in_reply_to"] = {"event_id": reply_to or thread_id}
    return content | {"m.relates_to": relation} if relation else content


def file(name: str, media_type: str, size: int, uploaded: Content) -> Content:
    """Build the message of a file; `uploaded` has its address and its key."""
    main = media_type.partition("/")[0]
    kind = f"m.{main}" if main in ("image", "audio", "video") else "m.file"
    info = {"mimetype": media_type, "size": size}
    return {"msgtype": kind, "body": name, "filename": name, "info": info} | uploaded


def measure_content(content: Content) -> int:
    return len(json.dumps(content))


def to_html(text: str) -> str:
    """Render Markdown as the HTML of Matrix; HTML in it is shown as text."""
    return _markdown().render(text).strip()


@cache
def _markdown() -> MarkdownIt:
    markdown = reader(breaks=True, xhtmlOut=True)
    markdown.add_render_rule("image", _image_as_link)
    return markdown


def _image_as_link(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Render a picture as a link: clients show only those of the homeserver, for privacy."""
    picture = tokens[index]
    address = str(picture.attrs.get("src", ""))
    return f'<a href="{escape(address)}">{escape(picture.content or address)}</a>'

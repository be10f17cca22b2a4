"""The text of an HTML mail: what mail programs mark as quoted with `>`, and without their signatures."""

import re
from html import escape
from html.parser import HTMLParser
from typing import Literal

from hermes_agent.tools import readable

_QUOTES = frozenset({
    "gmail_quote", "gmail_quote_container", "gmail_attr", "moz-cite-prefix", "yahoo_quoted",
    "protonmail_quote", "tutanota_quote", "zmail_extra",
})  # fmt: skip
_SIGNATURES = frozenset({"gmail_signature", "moz-signature", "protonmail_signature_block"})
_Kind = Literal["own", "quote", "signature"]
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr"}
)


def text_of_html(html: str) -> str:
    """Readable text; when all of it is marked, as if nothing were."""
    parts = [(kind, _text(part)) for kind, part in _parts(html)]
    if not any(kind == "own" and text for kind, text in parts):
        return _text(html)
    texts = ((kind, text) for kind, text in parts if text and kind != "signature")
    return "\n\n".join(text if kind == "own" else _quoted(text) for kind, text in texts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _text(html: str) -> str:
    try:
        return readable.text_of(html).strip()
    except AssertionError:  # the parser cannot read a declaration
        return re.sub(r"<[^>]*>", " ", html).strip()


def _parts(html: str) -> list[tuple[_Kind, str]]:
    """Split the HTML into pieces, each with its kind."""
    parser = _Marking()
    try:
        parser.feed(html)
        parser.close()
    except AssertionError:
        return [("own", html)]
    return [(kind, "".join(pieces)) for kind, pieces in parser.parts]


class _Marking(HTMLParser):
    """Finds the elements that hold quoted text or a signature."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[tuple[_Kind, list[str]]] = [("own", [])]
        self._inside = ""
        self._depth = 0

    def _begin(self, kind: _Kind) -> None:
        if self.parts[-1][0] != kind:
            self.parts.append((kind, []))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = _kind(tag, dict(attrs))
        if self._inside:
            self._depth += tag == self._inside
        elif tag not in _VOID and kind != "own":
            self._begin(kind)
            self._inside, self._depth = tag, 1
        self.parts[-1][1].append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self.parts[-1][1].append(f"</{tag}>")
        if tag == self._inside:
            self._depth -= 1
            if not self._depth:
                self._inside = ""
                self._begin("own")

    def handle_data(self, data: str) -> None:
        self.parts[-1][1].append(data if self.cdata_elem else escape(data))


def _kind(tag: str, attributes: dict[str, str | None]) -> _Kind:
    classes = (attributes.get("class") or "").split()
    if not _SIGNATURES.isdisjoint(classes):
        return "signature"
    is_cited = tag == "blockquote" and (attributes.get("type") or "").lower() == "cite"
    return "quote" if is_cited or not _QUOTES.isdisjoint(classes) else "own"

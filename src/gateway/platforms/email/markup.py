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
    if not any(kind == "own" and said for kind, said in parts):
        return _text(html)
    said = ((kind, text) for kind, text in parts if text and kind != "signature")
    return "\n\n".join(text if kind == "own" else _quoted(text) for kind, text in said)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _text(html: str) -> str:
    try:
        return readable.text_of(html).strip()
    except AssertionError:  # what the parser says to a declaration it cannot read
        return re.sub(r"<[^>]*>", " ", html).strip()


def _parts(html: str) -> list[tuple[_Kind, str]]:
    """The HTML in pieces, each with what it is."""
    parser = _Marking()
    try:
        parser.feed(html)
        parser.close()
    except AssertionError:
        return [("own", html)]
    return [(kind, "".join(kept)) for kind, kept in parser.parts]


class _Marking(HTMLParser):
    """Tells the elements apart that hold what was said before, or a signature."""

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


def _kind(tag: str, given: dict[str, str | None]) -> _Kind:
    classes = (given.get("class") or "").split()
    if not _SIGNATURES.isdisjoint(classes):
        return "signature"
    is_cited = tag == "blockquote" and (given.get("type") or "").lower() == "cite"
    return "quote" if is_cited or not _QUOTES.isdisjoint(classes) else "own"

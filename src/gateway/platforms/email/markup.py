"""The text of an HTML mail, if wished without what mail programs mark as quoted or as a signature."""

import re
from html import escape
from html.parser import HTMLParser

from hermes_agent.tools import readable

_QUOTES = frozenset({
    "gmail_quote", "gmail_quote_container", "gmail_attr", "moz-cite-prefix", "yahoo_quoted",
    "protonmail_quote", "tutanota_quote", "zmail_extra", "gmail_signature", "moz-signature",
    "protonmail_signature_block",
})  # fmt: skip
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "wbr"}
)


def text_of_html(html: str, *, without_quotes: bool) -> str:
    """Readable text; when everything is quoted, all of it."""
    if without_quotes and (said := _text(_unquoted(html))):
        return said
    return _text(html)


def _text(html: str) -> str:
    try:
        return readable.text_of(html).strip()
    except AssertionError:  # what the parser says to a declaration it cannot read
        return re.sub(r"<[^>]*>", " ", html).strip()


def _unquoted(html: str) -> str:
    parser = _Unquoting()
    try:
        parser.feed(html)
        parser.close()
    except AssertionError:
        return html
    return "".join(parser.kept)


class _Unquoting(HTMLParser):
    """Passes everything on but the elements that hold what was said before."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.kept: list[str] = []
        self._inside = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._inside:
            self._depth += tag == self._inside
        elif tag not in _VOID and _is_quote(tag, dict(attrs)):
            self._inside, self._depth = tag, 1
        else:
            self.kept.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if not self._inside:
            self.kept.append(f"</{tag}>")
        elif tag == self._inside:
            self._depth -= 1
            self._inside = self._inside if self._depth else ""

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.kept.append(data if self.cdata_elem else escape(data))


def _is_quote(tag: str, given: dict[str, str | None]) -> bool:
    classes = (given.get("class") or "").split()
    is_cited = tag == "blockquote" and (given.get("type") or "").lower() == "cite"
    return is_cited or not _QUOTES.isdisjoint(classes)

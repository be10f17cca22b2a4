"""The readable text of a web page: headings, paragraphs, lists, links and tables, without the rest."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_DROPPED = frozenset({
    "script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "nav", "footer",
    "aside", "form", "button", "select", "dialog", "head",
})  # fmt: skip
_BLOCKS = frozenset({
    "p", "div", "section", "article", "main", "header", "ul", "ol", "table", "tr", "blockquote", "pre",
    "figure", "figcaption", "dl", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "li", "hr", "br",
    "address", "details", "summary",
})  # fmt: skip
_VOID = frozenset(
    {"br", "hr", "img", "input", "meta", "link", "source", "wbr", "area", "base", "col"}
)
_ENOUGH = 400
"""Characters of a main part that make the rest of the page uninteresting."""


def text_of(html: str, url: str = "") -> str:
    """The text of a page; its main part alone when it has one."""
    parser = _Parser(url)
    parser.feed(html)
    parser.close()
    whole, main = _tidy(parser.whole), _tidy(parser.main)
    body = main if len(main) >= _ENOUGH else whole
    title = " ".join("".join(parser.title).split())
    if title and not body.lstrip("# ").startswith(title):
        return f"{title}\n\n{body}".strip()
    return body


def _tidy(pieces: list[str]) -> str:
    lines: list[str] = []
    in_code = False
    for line in "".join(pieces).split("\n"):
        in_code ^= line.strip() == "```"
        lines.append(line.rstrip() if in_code else re.sub(r"[ \t\xa0]+", " ", line).strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Parser(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self.whole: list[str] = []
        self.main: list[str] = []
        self.title: list[str] = []
        self._dropped: list[str] = []
        self._main_depth = 0
        self._in_title = False
        self._in_pre = 0
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "title" and not self.title:
            self._in_title = True
        if self._dropped or tag in _DROPPED:
            if tag not in _VOID:
                self._dropped.append(tag)
            return
        if tag in ("main", "article") or attributes.get("role") == "main":
            self._main_depth += 1
        self._open(tag, attributes)

    def _open(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in ("td", "th"):
            self._add(" | ")
        elif tag == "pre":
            self._in_pre += 1
            self._add("\n```\n")
        elif tag == "li":
            self._add("\n- ")
        elif tag[0] == "h" and tag[1:].isdigit():
            self._add("\n\n" + "#" * int(tag[1:]) + " ")
        elif tag == "br":
            self._add("\n")
        elif tag in _BLOCKS:
            self._add("\n\n" if tag in ("p", "blockquote", "table") else "\n")
        elif tag == "a":
            self._link = self._target(attributes.get("href") or "")
        elif tag == "img" and attributes.get("alt"):
            self._add(f"[image: {attributes['alt']}]")

    def _target(self, href: str) -> str:
        target = urljoin(self._url, href.strip()) if self._url else href.strip()
        return target if target.startswith(("http://", "https://")) else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._dropped:
            if tag in self._dropped:
                while self._dropped.pop() != tag:
                    pass
            return
        if tag == "a" and self._link:
            self._add(f" ({self._link})")
            self._link = ""
        elif tag == "pre" and self._in_pre:
            self._in_pre -= 1
            self._add("\n```\n")
        elif tag in _BLOCKS and tag not in ("li", "tr", "dt", "dd"):
            self._add("\n")
        if tag in ("main", "article") and self._main_depth:
            self._main_depth -= 1

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._dropped:
            self._add(data if self._in_pre else re.sub(r"\s+", " ", data))

    def _add(self, text: str) -> None:
        self.whole.append(text)
        if self._main_depth:
            self.main.append(text)

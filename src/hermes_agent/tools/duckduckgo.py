"""Web search without a key, by DuckDuckGo's page for browsers without scripts."""

from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from hermes_agent.tools.web import Web
from hermes_agent.tools.web_search import Hit
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ToolError

_ADDRESS = "https://html.duckduckgo.com/html/"
_OK = 200


class DuckDuckGo:
    """Reads the results off the page."""

    def __init__(self, address: str = _ADDRESS, web: Web | None = None) -> None:
        self._address = address
        self._web = web or Web()

    def search(self, query: str, limit: int, stop: Stop) -> Sequence[Hit]:
        page = self._web.fetch(f"{self._address}?{urlencode({'q': query})}", stop)
        parser = _Results(self._address)
        parser.feed(page.body.decode("utf-8", "replace"))
        parser.close()
        if page.status != _OK or (not parser.hits and b"no-results" not in page.body):
            raise ToolError(
                f"The search engine did not answer as expected (status {page.status}).",
                fix="Try again later, or set tools.search_url to a SearXNG server.",
            )
        return parser.hits[:limit]


class _Results(HTMLParser):
    """Links of class result__a are titles, what has class result__snippet belongs to the last one."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self.hits: list[Hit] = []
        self._url = ""
        self._text: list[str] = []
        self._inside = ""
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        if "result__a" in classes or "result__snippet" in classes:
            self._inside = "title" if "result__a" in classes else "snippet"
            self._tag, self._text = tag, []
            if self._inside == "title":
                self._url = self._target(attributes.get("href") or "")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._inside or tag != self._tag:
            return
        text = " ".join("".join(self._text).split())
        if self._inside == "title" and self._url and text:
            self.hits.append(Hit(text, self._url, ""))
        elif self._inside == "snippet" and self.hits and self._url == self.hits[-1].url:
            self.hits[-1] = self.hits[-1]._replace(snippet=text)
        self._inside = ""

    def _target(self, href: str) -> str:
        """Return where a link leads past the engine's own redirect; empty for advertisements."""
        url = urljoin(self._address, href)
        parts = urlsplit(url)
        if parts.path == "/l/":
            url = parse_qs(parts.query).get("uddg", [""])[0]
        elif parts.path.endswith("y.js"):
            return ""
        return url if url.startswith(("http://", "https://")) else ""

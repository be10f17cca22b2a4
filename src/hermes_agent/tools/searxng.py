"""Web search by a SearXNG server of the person's own."""

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from hermes_agent.tools.web import Web, origin
from hermes_agent.tools.web_search import Hit
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ToolError

_OK = 200


class _Found(msgspec.Struct):
    title: str = ""
    url: str = ""
    content: str | None = ""


class _Answer(msgspec.Struct):
    results: list[_Found] = []


class SearXNG:
    """Asks a server for JSON; it may be in the own network."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._web = Web({origin(base_url)})

    def search(self, query: str, limit: int, stop: Stop) -> Sequence[Hit]:
        page = self._web.fetch(
            f"{self._base_url}/search?{urlencode({'q': query, 'format': 'json'})}", stop
        )
        if page.status != _OK:
            raise ToolError(
                f"The search server answered with status {page.status}.",
                fix="It must allow format=json; see search.formats in its settings.yml.",
            )
        try:
            answer = msgspec.json.decode(page.body, type=_Answer)
        except msgspec.MsgspecError as error:
            raise ToolError(f"The search server sent no results: {error}.") from error
        return [Hit(f.title, f.url, f.content or "") for f in answer.results if f.url][:limit]

"""`web_search`: search the web, by whichever provider there is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from hermes_agent.approval.danger import Access
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Tool, ToolContext
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ToolError
from hermes_core.settings import Settings
from hermes_core.text import one_line, truncate
from hermes_state.values import TaintSource

_MAX_HITS = 20
_MAX_SNIPPET = 300


class Hit(NamedTuple):
    """One thing found."""

    title: str
    url: str
    snippet: str


class SearchProvider(Protocol):
    """Somebody who searches the web."""

    def search(self, query: str, limit: int, stop: Stop) -> Sequence[Hit]:
        """Find pages; raises ToolError."""
        ...


Factory = Callable[[Settings], SearchProvider]


def _searxng(settings: Settings) -> SearchProvider:
    from hermes_agent.tools.searxng import SearXNG  # noqa: PLC0415 -- only for those who have one

    return SearXNG(settings.tools.search_url)


def _duckduckgo(settings: Settings) -> SearchProvider:
    from hermes_agent.tools.duckduckgo import DuckDuckGo  # noqa: PLC0415 -- brings the page parser

    del settings
    return DuckDuckGo()


providers: dict[str, Factory] = {"searxng": _searxng, "duckduckgo": _duckduckgo}
"""By name, in the order they were added; plugins add theirs."""


def register(name: str, factory: Factory) -> None:
    """Add a provider; the last one that was added is used, unless settings name a server."""
    providers[name] = factory


def choose(settings: Settings) -> SearchProvider:
    """The provider that is used: the configured server, else a plugin's, else the keyless one."""
    name = "searxng" if settings.tools.search_url else next(reversed(providers))
    return providers[name](settings)


def _run(args: Args, call: Call) -> str:
    query = args["query"].strip()
    if not query:
        raise ToolError("There is nothing to search for.", fix="Give words in query.")
    limit = min(args.get("limit", 8), _MAX_HITS)
    hits = choose(call.bench.settings).search(query, limit, call.stop)
    return (
        "\n".join(_line(number, hit) for number, hit in enumerate(hits[:limit], 1))
        or "Nothing found."
    )


def _line(number: int, hit: Hit) -> str:
    snippet = truncate(one_line(hit.snippet), _MAX_SNIPPET)
    return f"{number}. {one_line(hit.title)}\n   {hit.url}\n   {snippet}"


def _reads(args: Args, _bench: ToolContext, _access: Access) -> list[TaintSource]:
    query = truncate(one_line(args["query"]), 80)
    return [TaintSource("outside", f"the search results for “{query}”")]


TOOL = Tool(
    name="web_search",
    description="Search the web.",
    parameters=schema.of(["query"], query="", limit={"type": "integer", "minimum": 1}),
    run=_run,
    subject="query",
    read_only=True,
    reads=_reads,
    timeout_s=60,
)

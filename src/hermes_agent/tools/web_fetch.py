"""`web_fetch`: the readable text of a web page."""

import re

from hermes_agent.approval import taint
from hermes_agent.approval.danger import Access
from hermes_agent.approval.taint import Sending
from hermes_agent.sandbox.hosts import name_of
from hermes_agent.tools import output, schema
from hermes_agent.tools.base import Args, Call, Result, Tool, ToolContext
from hermes_agent.tools.web import Page, Web, origin
from hermes_core.errors import ToolError
from hermes_state.values import TaintSource

_TEXT = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|javascript|yaml|toml|x-ndjson|x-yaml)|"
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_META_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
_FAILED = 400
_NOTES_ROOM = 300


def make(web: Web) -> Tool:
    """The tool on this way to the web."""

    def run(args: Args, call: Call) -> Result:
        page = web.fetch(args["url"].strip(), call.stop)
        limit = call.bench.settings.tools.output_limit - _NOTES_ROOM
        text = output.for_model(_text(page), limit, call.bench.outputs).strip() or "(no text)"
        notes = [f"[from {page.url}]"] if page.url != args["url"].strip() else []
        notes += ["[the page was too large and is cut]"] if page.is_cut else []
        if page.status >= _FAILED:
            notes.append(f"[the server answered with status {page.status}]")
        return Result("\n".join([text, *notes]), is_error=page.status >= _FAILED)

    return Tool(
        name="web_fetch",
        description="Read a public web page as text.",
        parameters=schema.of(["url"], url=""),
        run=run,
        subject="url",
        read_only=True,
        reads=_reads,
        sends=_sends,
        timeout_s=60,
        small=("url",),
    )


def _reads(args: Args, _bench: ToolContext, _access: Access) -> list[TaintSource]:
    return [TaintSource("outside", f"the web page {args['url'].strip()}")]


def _sends(args: Args, bench: ToolContext, _access: Access) -> Sending | None:
    """An address that the model composed may carry anything that it has read."""
    url = args["url"].strip()
    try:
        host, _, port = origin(url).rpartition(":")
    except (ToolError, ValueError):  # then nothing is fetched either
        return None
    if taint.is_named(bench.store, bench.conversation_id, url):
        return None
    reason = "Fetches an address that neither you nor a page named, so it may carry data away"
    return Sending(reason, name_of(host.lower(), int(port)), is_host=True)


def _text(page: Page) -> str:
    if not _TEXT.fullmatch(page.content_type) or b"\0" in page.body[:1024]:
        kind = page.content_type or "of an unknown kind"
        raise ToolError(
            f"{page.url} is {kind}, {len(page.body)} bytes, and no text.",
            fix="Download it with terminal.",
        )
    text = page.body.decode(_charset(page), "replace")
    is_html = page.content_type in _HTML or (
        not page.content_type and text.lstrip()[:100].lower().startswith(("<!doctype", "<html"))
    )
    if not is_html:
        return text
    from hermes_agent.tools.readable import text_of  # noqa: PLC0415 -- brings the page parser

    return text_of(text, page.url)


def _charset(page: Page) -> str:
    found = _META_CHARSET.search(page.body[:4096])
    for name in (page.charset, found[1].decode("ascii") if found else "", "utf-8"):
        try:
            "".encode(name or "?")
        except LookupError:
            continue
        return name
    return "utf-8"


TOOL = make(Web())

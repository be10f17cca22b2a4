"""Reading and searching the web, against servers of this machine."""

import ipaddress
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from hermes_agent.addresses import is_public
from hermes_agent.tools import web_fetch, web_search
from hermes_agent.tools.base import Tool
from hermes_agent.tools.duckduckgo import DuckDuckGo
from hermes_agent.tools.readable import text_of
from hermes_agent.tools.searxng import SearXNG
from hermes_agent.tools.web import Web, origin
from hermes_agent.turn.stop import Stop
from hermes_core import secrets
from hermes_core.errors import Interrupted, ToolError
from hermes_core.settings import Settings, ToolSettings
from tests.agent.tools.conftest import Desk, MakeDesk

Answer = tuple[int, dict[str, str], bytes]


class Site:
    """A web server with a table of answers."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append((self.path, dict(self.headers)))
                answer = site.answers.get(urlsplit(self.path).path)
                if callable(answer):
                    answer(self)
                    return
                status, headers, body = answer or (404, {"Content-Type": "text/plain"}, b"nothing")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def put(self, path: str, body: str | bytes, kind: str = "text/html", status: int = 200) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.answers[path] = (status, {"Content-Type": kind}, data)
        return self.url + path

    def redirect(self, path: str, target: str) -> str:
        self.answers[path] = (302, {"Location": target}, b"")
        return self.url + path

    @property
    def web(self) -> Web:
        return Web({origin(self.url)})

    @property
    def tool(self) -> Tool:
        return web_fetch.make(self.web)


@pytest.fixture
def site() -> Iterator[Site]:
    running_site = Site()
    yield running_site
    running_site.server.shutdown()
    running_site.server.server_close()


PAGE = """<!DOCTYPE html><html><head><title>The  Title</title><style>p {}</style></head>
<body><nav><a href="/">Home</a></nav><script>alert(1)</script>
<h1>Heading</h1><p>First &amp; <b>bold</b> text with a <a href="/next?a=1">link</a>.</p>
<ul><li>one</li><li>two</li></ul><pre>  code
    kept</pre><table><tr><th>a</th><td>b</td></tr></table>
<form><input><button>Buy</button></form><footer>imprint</footer></body></html>"""


def test_a_page_is_read_as_text(desk: Desk, site: Site) -> None:
    text = desk.text(site.tool, url=site.put("/", PAGE))
    assert text.startswith("The Title\n\n# Heading\n")
    assert f"First & bold text with a link ({site.url}/next?a=1)." in text
    assert "- one\n- two" in text
    assert "```\n  code\n    kept\n```" in text
    assert "| a | b" in text
    for word in ("alert", "Home", "Buy", "imprint", "p {}"):
        assert word not in text


def test_the_main_part_of_a_page_is_enough() -> None:
    page = f"<div>around</div><main><p>{'word ' * 200}</p></main><div>and more</div>"
    assert "around" not in text_of(page)
    assert "around" in text_of("<div>around</div><main>little</main>")


def test_a_broken_page_is_read_as_well_as_it_goes() -> None:
    assert text_of("<p>one<script>x</p>") == "one"
    assert text_of("<nav><div>a</nav>b</div>") == "b"
    assert text_of("plain") == "plain"
    assert text_of("") == ""
    assert "one" in text_of("<li>one<h9>x</h9><hx>")


def test_json_and_plain_text_pass_as_they_are(desk: Desk, site: Site) -> None:
    assert desk.text(site.tool, url=site.put("/j", '{"a": 1}', "application/json")) == '{"a": 1}'
    assert desk.text(site.tool, url=site.put("/t", "a < b", "text/plain")) == "a < b"


def test_other_encodings_are_read(desk: Desk, site: Site) -> None:
    url = site.put("/l", "grün".encode("latin-1"), "text/plain; charset=iso-8859-1")
    assert desk.text(site.tool, url=url) == "grün"
    page = '<meta charset="latin-1"><p>grün'.encode("latin-1")
    assert desk.text(site.tool, url=site.put("/m", page)) == "grün"
    assert desk.text(site.tool, url=site.put("/w", b"x", "text/plain; charset=nonsense")) == "x"


def test_what_is_no_text_is_refused(desk: Desk, site: Site) -> None:
    message = desk.error(site.tool, url=site.put("/p", b"\x89PNG", "image/png"))
    assert "image/png, 4 bytes, and no text" in message


def test_an_error_of_the_server_is_told_with_its_text(desk: Desk, site: Site) -> None:
    result = desk.run(site.tool, url=site.put("/x", "gone", "text/plain", 410))
    assert result.is_error
    assert result.text == "gone\n[the server answered with status 410]"


def test_redirects_are_followed_and_told_but_not_for_ever(desk: Desk, site: Site) -> None:
    site.put("/end", "here", "text/plain")
    site.redirect("/middle", "/end")
    text = desk.text(site.tool, url=site.redirect("/begin", f"{site.url}/middle"))
    assert text == f"here\n[from {site.url}/end]"
    assert "again and again" in desk.error(site.tool, url=site.redirect("/loop", "/loop"))


def test_a_large_page_is_cut(desk: Desk, site: Site) -> None:
    web = Web({origin(site.url)}, most_bytes=1000)
    tool = web_fetch.make(web)
    text = desk.text(tool, url=site.put("/big", "x" * 5000, "text/plain"))
    assert text == "x" * 1000 + "\n[the page was too large and is cut]"


def test_a_long_page_is_saved_whole(make_desk: MakeDesk, site: Site) -> None:
    desk = make_desk(output_limit=2000)
    text = desk.text(site.tool, url=site.put("/long", "word\n" * 5000, "text/plain"))
    assert len(text) <= 2000
    (saved,) = desk.bench.outputs.iterdir()
    assert str(saved) in text


PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fd00:ec2::254",
    "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::", "2001:db8::1", "192.0.0.192", "192.0.0.8", "192.0.0.10", "168.63.129.16",
    "192.88.99.1", "240.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1",
    "64:ff9b::c000:c0", "::ffff:192.0.0.192", "2001::1", "2001:20::1", "2001:1::1", "3fff::1", "5f00::1",
    "100::1", "4000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2001:4860::1",
     "2002:101:101::1", "192.0.1.1", "203.0.112.1", "223.255.255.255"],
)  # fmt: skip
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "[::1]", "0", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"],
)
def test_this_machine_is_refused_however_it_is_written(desk: Desk, site: Site, host: str) -> None:
    site.put("/", "inside", "text/plain")
    message = desk.error(web_fetch.TOOL, url=f"http://{host}:{site.server.server_port}/")
    assert "private network" in message or "not known" in message
    assert site.requests == []


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://localhost:1/"],
)
def test_a_redirect_into_a_private_network_is_refused(desk: Desk, site: Site, target: str) -> None:
    assert "private network" in desk.error(site.tool, url=site.redirect("/out", target))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "not a web address"),
        ("ftp://example.org/x", "not a web address"),
        ("example.org", "not a web address"),
        ("http://", "not a web address"),
        ("http://example.org:99999/", "Correct the port"),
        ("http://user:pw@example.org/", "password"),
        ("gopher://127.0.0.1/", "not a web address"),
        ("http://no-such-name.invalid/", "not known"),
    ],
)
def test_what_is_no_web_address_is_refused(desk: Desk, url: str, words: str) -> None:
    assert words in desk.error(web_fetch.TOOL, url=url)


def test_an_address_with_a_secret_in_it_is_refused(desk: Desk, site: Site) -> None:
    secrets.register({"SOME_KEY": "sk-1234567890"})
    assert "secret" in desk.error(site.tool, url=f"{site.url}/?k=sk-1234567890")
    assert site.requests == []


def test_the_vetted_address_is_connected_to_under_the_name(desk: Desk, site: Site) -> None:
    port = site.server.server_port
    site.put("/", "named", "text/plain")
    tool = web_fetch.make(Web({f"localhost:{port}"}))
    # The name may lead to ::1 first, where nobody listens.
    assert desk.text(tool, url=f"http://localhost:{port}/") == "named"
    assert site.requests[0][1]["Host"] == f"localhost:{port}"


def test_a_server_that_is_not_there_is_told(desk: Desk, site: Site) -> None:
    site.server.shutdown()
    site.server.server_close()
    assert "cannot be fetched" in desk.error(site.tool, url=site.url)


def test_a_stop_does_not_wait_for_a_silent_server(desk: Desk, site: Site) -> None:
    is_requested, over = threading.Event(), threading.Event()

    def silent(_handler: BaseHTTPRequestHandler) -> None:
        is_requested.set()
        over.wait(30)

    site.answers["/"] = silent
    stop = Stop()
    stopper = threading.Thread(target=lambda: (is_requested.wait(30), stop.set()))
    stopper.start()
    with pytest.raises(Interrupted):
        desk.run(site.tool, stop, url=f"{site.url}/")
    over.set()
    stopper.join(30)


# Searching

RESULTS = """<html><body><div class="result results_links">
<h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.org%2Fa%3Fb%3D1&amp;rut=x">First
 <b>hit</b></a></h2>
<a class="result__snippet" href="x">About the <b>first</b>.</a></div>
<div class="result result--ad"><a class="result__a" href="https://duckduckgo.com/y.js?ad=1">Ad</a>
<a class="result__snippet">buy</a></div>
<div class="result"><a class="result__a" href="https://example.com/">Second</a>
<a class="result__snippet">The second.</a></div></body></html>"""


def test_results_are_read_off_the_page_without_advertisements(site: Site) -> None:
    site.put("/html/", RESULTS)
    provider = DuckDuckGo(f"{site.url}/html/", site.web)
    hits = provider.search("two words", 5, Stop())
    assert [(hit.title, hit.url, hit.snippet) for hit in hits] == [
        ("First hit", "https://example.org/a?b=1", "About the first."),
        ("Second", "https://example.com/", "The second."),
    ]
    assert parse_qs(urlsplit(site.requests[0][0]).query) == {"q": ["two words"]}
    assert len(provider.search("x", 1, Stop())) == 1


def test_a_page_that_is_no_page_of_results_is_told(site: Site) -> None:
    provider = DuckDuckGo(f"{site.url}/html/", site.web)
    site.put("/html/", "<p>are you a robot?</p>", status=202)
    with pytest.raises(ToolError, match=r"tools\.search_url"):
        provider.search("x", 5, Stop())
    site.put("/html/", '<div class="no-results">No results.</div>')
    assert provider.search("x", 5, Stop()) == []


def test_a_searxng_server_is_asked_when_it_is_configured(make_desk: MakeDesk, site: Site) -> None:
    answer = {"results": [{"title": "T", "url": "https://example.org", "content": "about\n it"}]}
    site.put("/sx/search", json.dumps(answer), "application/json")
    desk = make_desk(search_url=f"{site.url}/sx/")
    text = desk.text(web_search.TOOL, query="hello")
    assert text == "1. T\n   https://example.org\n   about it"
    assert "format=json" in site.requests[0][0]
    site.put("/sx/search", "no", "text/plain", 403)
    assert "search.formats" in desk.error(web_search.TOOL, query="hello")
    site.put("/sx/search", "<html>", "text/html")
    assert "sent no results" in desk.error(web_search.TOOL, query="hello")
    assert "nothing to search" in desk.error(web_search.TOOL, query=" ")


def test_a_plugin_may_add_a_provider(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_search, "providers", dict(web_search.providers))
    assert isinstance(web_search.choose(Settings()), DuckDuckGo)

    class Mine:
        def search(self, query: str, limit: int, stop: Stop) -> list[web_search.Hit]:
            return [web_search.Hit(query, "https://example.org", "") for _ in range(limit + 3)]

    web_search.register("mine", lambda _settings: Mine())
    assert desk.text(web_search.TOOL, query="q", limit=2).count("https://") == 2
    settings = Settings(tools=ToolSettings(search_url="http://localhost:8888"))
    assert isinstance(web_search.choose(settings), SearXNG)

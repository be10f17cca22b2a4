"""`hermes sessions export` in formats for people and other programs."""

import base64
import re
import threading
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt

from hermes_cli.transcripts import html, markdown, transcript
from hermes_core import markdown as blocks
from hermes_core import secrets
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import lineage, usage
from hermes_state.values import Spent
from tests.cli.conftest import Shell

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
HOSTILE = [
    "<script>alert(1)</script>",
    "</div></article><script src=//evil.example></script>",
    "<img src=x onerror=alert(1)>",
    "![](https://evil.example/track.png) ![a][b]\n\n[b]: https://evil.example/b.png",
    "[click](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>)",
    '<https://evil.example/"onmouseover=alert(1)>',
    "<!-- never closed",
    "<style>*{display:none}</style><base href=//evil.example>",
    "```\nnever closed",
    "- list\n  ```\n  never closed in a list",
    "# You · 2026-11-01 10:00\n\nA heading that is not one\n===\n",
    '``` " onclick=alert(1)\ncode\n```',
    "\x1b]0;title\x07 \u202e reversed \x00",
    "inline <b onclick=x> and `code <i>` | table\n|---|\n| ` | <img src=x> ` |\n\\` <u> `",
    "`a\nb` <script>x</script> `c`",
    "&lt;script&gt; &#60;b&#62;",
]


@pytest.fixture
def store(home: Home) -> Any:
    with SessionDB(home.database) as store:
        yield store


@pytest.fixture
def talk(store: SessionDB) -> str:
    """A conversation with tools, reasoning, a picture and a compaction; returns its id."""
    store.create_session("first", "cli", model="small")
    store.append_message("first", "user", "What is in\nthis folder?")
    call = {"id": "c1", "function": {"name": "list_files", "arguments": '{"path": "a `b`"}'}}
    store.append_message(
        "first", "assistant", "Let me look.", tool_calls=[call], reasoning="I need a list."
    )
    store.append_message(
        "first",
        "tool",
        "README.md\nsecond line " + "x" * 300,
        tool_call_id="c1",
        tool_name="list_files",
    )
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_encoded(PNG)}"}}
    last = store.append_message("first", "user", [{"type": "text", "text": "Look."}, picture])
    spent = Spent("small", "local", 100, 20, 40, 0, 0, 0.5)
    store.write(usage.record, "first", spent)
    store.set_session_title("first", "Folder *talk* <b>")
    store.write(
        lineage.rotate, "first", [{"role": "user", "content": "Summary."}, last], child_id="second"
    )
    store.append_message("second", "assistant", "A **picture**:\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    return "second"


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_markdown_has_the_whole_conversation_with_a_line_per_tool_call(
    talk: str, shell: Shell
) -> None:
    output = shell.run(f"sessions export {talk} --format markdown")
    assert output.startswith("# Folder \\*talk\\* \\<b\\>\n")
    heads = re.findall(r"^## (\w+) · \d{4}-\d\d-\d\d \d\d:\d\d$", output, re.MULTILINE)
    assert heads == ["You", "Hermes", "You", "Hermes"]
    (line,) = [line for line in output.splitlines() if "list\\_files" in line]
    assert line.startswith("- **list\\_files** `` a `b` `` → `README.md second line xxx")
    assert line.endswith("…`") and "I need a list." not in output and "Summary." not in output
    assert "*[Picture: image/png, 48 bytes]*" in output


def test_full_markdown_has_whole_calls_and_reasoning(talk: str, shell: Shell) -> None:
    output = shell.run(f"sessions export {talk} -f markdown --full")
    assert "x" * 300 in output and '{"path":"a `b`"}' in output and "I need a list." in output


def test_code_in_a_message_is_not_changed() -> None:
    text = "Use `Vec<u8>` or\n\n```html\n<b>\n```\n\n    <i>"
    assert markdown.contained(text) == text
    assert markdown.contained("# A\n\nB\n===") == "### A\n\n### B\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_message_stays_inside_of_its_part_of_the_markdown(text: str, store: SessionDB) -> None:
    store.create_session("a", "cli")
    store.append_message("a", "user", text)
    store.append_message("a", "assistant", text)
    output = "".join(markdown.render(store.read(transcript.load, "a"), full=True))
    found = [block for block in blocks.blocks(output) if block.kind == "heading"]
    lines = output.split("\n")
    top = [lines[b.start] for b in found if lines[b.start].startswith(("# ", "## "))]
    assert [line.split()[1] for line in top[1:]] == ["You", "Hermes"]
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    kinds = {t.type for token in parser.parse(output) for t in (token, *(token.children or ()))}
    assert not kinds & {"html_block", "html_inline"}
    assert "\x1b" not in output and "\u202e" not in output


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "hr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


_TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "h5", "h6", "p",
    "article", "header", "time", "div", "details", "summary", "pre", "code", "a", "ul", "ol", "li",
    "blockquote", "em", "strong", "table", "thead", "tbody", "tr", "th", "td", "br", "hr", "s",
}  # fmt: skip
_ATTRIBUTES = {
    "class", "datetime", "lang", "charset", "http-equiv", "content", "name", "open", "start", "style",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_message_can_run_and_load_nothing_in_html(text: str, store: SessionDB) -> None:
    store.create_session("a", text[:40], model=text)
    call = {"id": text, "function": {"name": text, "arguments": {text: text}}}
    store.append_message("a", "user", text)
    store.append_message("a", "assistant", text, tool_calls=[call], reasoning=text)
    store.append_message("a", "tool", text, tool_call_id=text, tool_name=text)
    store.append_message("a", text, text)
    output = "".join(html.render([store.read(transcript.load, "a")], full=True))
    page = Page(output)
    for tag, attributes in page.tags:
        assert tag in _TAGS
        for name, value in attributes.items():
            if name == "href":
                assert tag == "a" and (value or "").startswith(("http:", "https:"))
            elif name == "src":
                assert tag == "img" and (value or "").startswith("data:image/")
            else:
                assert name in _ATTRIBUTES or (tag, name) == ("img", "alt")
            assert name != "style" or re.fullmatch(r"text-align:\w+", value or "")
    assert [tag for tag, _ in page.tags].count("style") == 1
    assert output.count("<article") == output.count("</article>") == 3


def test_html_is_one_file_with_pictures_and_both_themes(talk: str, shell: Shell) -> None:
    output = shell.run(f"sessions export {talk} --format html")
    page = Page(output)
    assert "prefers-color-scheme: dark" in output and "default-src 'none'" in output
    assert f"data:image/png;base64,{_encoded(PNG)}" in output
    assert ("strong", {}) in page.tags and ("td", {}) in page.tags
    assert ("details", {}) in page.tags and "list_files a `b` → README.md" in page.words
    assert ("details", {"open": None}) in Page(
        shell.run(f"sessions export {talk} -f html --full")
    ).tags


def test_pictures_beyond_the_limits_are_named(
    talk: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "_MAX_PICTURES_BYTES", 47)
    assert "[Picture that is not included: image/png, 48 bytes]" in shell.run(
        f"sessions export {talk} -f html"
    )
    monkeypatch.setattr(transcript, "_MAX_PICTURE_BYTES", 47)
    assert "not included: image/png, 48 bytes" in shell.run(f"sessions export {talk} -f markdown")


@pytest.mark.parametrize(
    "address",
    [
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:image/png;base64,!!",
        "https://evil.example/a.png",
        "x",
    ],
)
def test_only_pictures_of_known_formats_are_embedded(address: str, store: SessionDB) -> None:
    store.create_session("a", "cli")
    store.append_message("a", "user", [{"type": "image_url", "image_url": {"url": address}}])
    output = "".join(html.render([store.read(transcript.load, "a")], full=False))
    assert "<img" not in output and "[Picture that is not included:" in output


# -- ATIF: the rules of its specification, version 1.7 ----------------------------------------------

_ROOT = {
    "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
    "continued_trajectory_ref", "extra", "subagent_trajectories",
}  # fmt: skip
_STEP = {
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content",
    "tool_calls", "observation", "metrics", "extra", "llm_call_count", "is_copied_context",
}  # fmt: skip
_AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
_METRICS = {
    "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd",
    "total_steps", "extra",
}  # fmt: skip


def check_trajectory(value: dict[str, Any]) -> None:
    assert value["schema_version"] == "ATIF-v1.7" and set(value) <= _ROOT
    agent = value["agent"]
    assert agent["name"] and agent["version"]
    assert set(agent) <= {"name", "version", "model_name", "tool_definitions", "extra"}
    assert set(value["final_metrics"]) <= _METRICS and value["steps"]
    for number, step in enumerate(value["steps"], 1):
        assert step["step_id"] == number and set(step) <= _STEP
        assert step["source"] in ("system", "user", "agent") and isinstance(step["message"], str)
        assert step["source"] == "agent" or not _AGENT_ONLY & set(step)
        assert datetime.fromisoformat(step["timestamp"]).tzinfo is not None
        for call in step.get("tool_calls", ()):
            assert set(call) == {"tool_call_id", "function_name", "arguments"}
            assert call["tool_call_id"] and call["function_name"]
            assert isinstance(call["arguments"], dict)
        ids = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        for result in step.get("observation", {"results": []})["results"]:
            assert set(result) == {"source_call_id", "content"}
            assert result["source_call_id"] in ids and isinstance(result["content"], str)


def test_a_trajectory_follows_the_specification(talk: str, shell: Shell) -> None:
    value = msgspec.json.decode(shell.run(f"sessions export {talk} --format atif"))
    check_trajectory(value)
    assert value["session_id"] == "first" and value["agent"]["model_name"] == "small"
    assert [step["source"] for step in value["steps"]] == ["user", "agent", "user", "agent"]
    step = value["steps"][1]
    assert step["reasoning_content"] == "I need a list."
    assert step["tool_calls"][0]["arguments"] == {"path": "a `b`"}
    assert step["observation"]["results"][0]["content"].startswith("README.md\nsecond")
    assert value["final_metrics"] == {
        "total_prompt_tokens": 100,
        "total_completion_tokens": 20,
        "total_cached_tokens": 40,
        "total_cost_usd": 0.5,
        "total_steps": 4,
    }


def test_odd_messages_make_a_valid_trajectory(store: SessionDB, shell: Shell) -> None:
    store.create_session("odd", "cli")
    store.append_message("odd", "tool", "nobody asked", tool_call_id="?", tool_name="t")
    calls: list[Any] = [
        "text",
        {"function": {"name": "", "arguments": "not json"}},
        {"id": 7},
        None,
    ]
    store.append_message("odd", "assistant", None, tool_calls=calls)
    store.append_message("odd", "developer", [{"type": "audio"}, 7, None])
    branch = store.write(lineage.branch, "odd")
    lines = shell.run("sessions export -f atif").splitlines()
    for line in lines:
        check_trajectory(msgspec.json.decode(line))
    copied = next(v for v in map(msgspec.json.decode, lines) if v["trajectory_id"] == branch)
    assert any(step.get("is_copied_context") for step in copied["steps"])


# -- every format -----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["markdown", "html", "atif", "jsonl"])
def test_secrets_are_redacted(
    format_: str, store: SessionDB, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tok-4711-abcdefgh")
    store.create_session("a", "cli")
    call = {"id": "1", "function": {"name": "t", "arguments": '{"a": "tok-4711-abcdefgh"}'}}
    store.append_message("a", "assistant", "tok-4711-abcdefgh", tool_calls=[call])
    output = shell.run(f"sessions export a -f {format_} --full")
    secrets.clear()
    assert "tok-4711-abcdefgh" not in output


@pytest.mark.parametrize("format_", ["markdown", "html", "atif"])
def test_several_conversations_go_into_one_private_file(
    format_: str, talk: str, store: SessionDB, shell: Shell, tmp_path: Path
) -> None:
    store.create_session("other", "cli")
    store.append_message("other", "user", "Another matter.")
    file = tmp_path / "export"
    report = shell.json(f"sessions export {talk} other -f {format_} -o {file}")
    content = file.read_text("utf-8")
    assert report == {"file": str(file), "lines": content.count("\n")}
    assert file.stat().st_mode & 0o777 == 0o600
    assert "Another matter." in content and "Let me look." in content
    assert shell.run(f"sessions export -f {format_}").count("Let me look.") == 1
    shell.run(f"sessions export -f {format_} -o {file}", status=2)


def test_a_conversation_that_is_written_meanwhile_is_exported_whole(
    store: SessionDB, home: Home, shell: Shell
) -> None:
    store.create_session("a", "cli")
    stop = threading.Event()

    def write() -> None:
        number = 0
        with SessionDB(home.database) as other:
            while not stop.is_set():
                number += 1
                call = {"id": f"c{number}", "function": {"name": "t", "arguments": "{}"}}
                batch = [
                    ("assistant", {"tool_calls": [call]}),
                    ("tool", {"tool_call_id": f"c{number}"}),
                ]
                for role, more in batch:
                    other.append_message("a", role, "text", **more)

    store.append_message("a", "user", "Begin.")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for format_ in ("markdown", "html", "atif") * 3:
            output = shell.run(f"sessions export a -f {format_}")
            assert "Begin." in output
            if format_ == "atif":
                check_trajectory(msgspec.json.decode(output))
    finally:
        stop.set()
        writer.join(20)

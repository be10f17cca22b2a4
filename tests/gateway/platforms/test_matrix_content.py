"""What Matrix is sent: Markdown as safe HTML, within the size of an event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.matrix import content


def test_plain_text_has_no_markup_beside_it() -> None:
    assert content.message("1 < 2 & so on") == {"msgtype": "m.text", "body": "1 < 2 & so on"}


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**b** *i* `c` ~~s~~", "<p><strong>b</strong> <em>i</em> <code>c</code> <s>s</s></p>"),
        ("one\ntwo", "<p>one<br />\ntwo</p>"),
        ("[l](https://example.org)", '<p><a href="https://example.org">l</a></p>'),
        ("![a cat](https://example.org/c)", '<p><a href="https://example.org/c">a cat</a></p>'),
        ("`<b>`", "<p><code>&lt;b&gt;</code></p>"),
    ],
)
def test_markdown_is_shown(text: str, html: str) -> None:
    assert content.message(text)["formatted_body"] == html


@pytest.mark.parametrize(
    "text",
    [
        "*x* <script>alert(1)</script>",
        "*x* [y](javascript:alert(1))",
        '*x* ![y](data:text/html;base64,AAAA "z")',
        '*x* ![y" onerror="alert(1)](https://example.org)',
    ],
)
def test_what_could_run_is_only_text(text: str) -> None:
    html = content.message(text)["formatted_body"]
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert 'href="data' not in html
    assert '" onerror' not in html


def test_a_table_is_one() -> None:
    assert "<td>1</td>" in content.to_html("|a|\n|-|\n|1|")


@given(st.text(max_size=200))
def test_a_text_is_measured_as_it_goes_into_an_event(text: str) -> None:
    assert content.measure(text) == sum(content.measure(letter) for letter in text)
    assert content.measure_content(content.message(text)) < 1000 + 20 * content.measure(text)


def test_markup_that_does_not_fit_is_left_out() -> None:
    text = "*x* " * (content.TEXT_LIMIT // 4)
    assert "formatted_body" not in content.message(text)
    assert "formatted_body" in content.message(text[:8000])


def test_an_edit_repeats_only_the_beginning_outside() -> None:
    edit = content.edit("long " * 1000, "$1")
    assert edit["m.new_content"]["body"] == "long " * 1000
    assert len(edit["body"]) < 300
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$1"}


def test_replies_and_threads_are_relations() -> None:
    plain = content.message("hi")
    assert content.related(plain, None, None) == plain
    reply = content.related(plain, "$1", None)["m.relates_to"]
    assert reply == {"m.in_reply_to": {"event_id": "$1"}}
    thread = content.related(plain, None, "$0")["m.relates_to"]
    assert thread["is_falling_back"] is True
    both = content.related(plain, "$1", "$0")["m.relates_to"]
    assert (both["event_id"], both["m.in_reply_to"]["event_id"]) == ("$0", "$1")
    assert both["is_falling_back"] is False


def test_control_characters_do_not_reach_the_server() -> None:
    assert content.message("a\x00b\ud800c")["body"] == "a�b�c"

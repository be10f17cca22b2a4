"""Translates rich messages, which the library does not know, to plain ones with the same content.

A rich message is made of blocks, and these of texts: a string, a list of texts, or an object with one.
Blocks of an unknown kind are read as far as their fields are known.
"""

from collections.abc import Sequence
from typing import Any, cast

from gateway.platforms.telegram.markdown import utf16
from gateway.platforms.telegram.wire import table

Json = dict[str, Any]

UNREADABLE = "[Something was sent that cannot be read here.]"
_FILES = {
    "photo": "photo",
    "video": "video",
    "animation": "animation",
    "audio": "audio",
    "voice_note": "voice",
    "document": "document",
}
"""The files that a block may be, and their names in a message."""
_MARKED = ("mention", "text_mention", "bot_command")


def as_plain(payload: Any) -> Any:  # noqa: ANN401 -- whatever JSON holds
    """Replace every rich message in a payload by a plain one."""
    if isinstance(payload, list):
        return [as_plain(item) for item in cast("list[Any]", payload)]
    if not isinstance(payload, dict):
        return payload
    fields = {key: as_plain(value) for key, value in cast("Json", payload).items()}
    rich = table(fields.pop("rich_message", None))
    if not rich:
        return fields
    text = _Text()
    text.blocks(_listed(rich.get("blocks")), "\n\n")
    return text.files | fields | {"text": text.content or UNREADABLE, "entities": text.entities}


class _Text:
    """The text as it grows, with the entities that matter to the translation."""

    def __init__(self) -> None:
        self.entities: list[Json] = []
        self.files: Json = {}
        """Its first file; a message has one."""
        self._parts: list[str] = []
        self._length = 0

    @property
    def content(self) -> str:
        return "".join(self._parts).rstrip()

    def blocks(self, blocks: Sequence[Any], between: str = "\n") -> None:
        for number, block in enumerate(blocks):
            if number:
                self._add(between)
            self._block(table(block))

    def _block(self, block: Json) -> None:
        is_code = block.get("type") == "pre"
        self._add(f"```{block.get('language') or ''}\n" if is_code else "")
        parts = [name for name in ("summary", "text", "expression") if block.get(name)]
        for name in parts:
            self._inline(block[name])
        self._add("\n```" if is_code else "")
        self._add("\n" if parts and block.get("blocks") else "")
        self.blocks(_listed(block.get("blocks")))
        self._items(_listed(block.get("items")))
        self._rows(_listed(block.get("cells")))
        self._file(block)
        for name in ("caption", "credit"):
            if block.get(name):
                self._add("\n" if self._parts else "")
                self._inline(block[name])

    def _items(self, items: Sequence[Any]) -> None:
        for number, item in enumerate(map(table, items)):
            box = ("[x] " if item.get("is_checked") else "[ ] ") if item.get("has_checkbox") else ""
            self._add("\n" if number else "")
            self._add(f"{item.get('label') or '-'} {box}")
            self.blocks(_listed(item.get("blocks")))

    def _rows(self, rows: Sequence[Any]) -> None:
        for number, row in enumerate(map(_listed, rows)):
            self._add("\n" if number else "")
            for column, cell in enumerate(map(table, row)):
                self._add(" | " if column else "")
                self._inline(cell.get("text"))

    def _file(self, block: Json) -> None:
        if location := table(block.get("location")):
            self._add(f"Location: {location.get('latitude')}, {location.get('longitude')}")
        for name, kind in _FILES.items():
            if block.get(name):
                self._add(f"[{kind}]")
                self.files = self.files or {kind: block[name]}

    def _inline(self, text: object) -> None:
        if isinstance(text, str):
            self._add(text)
        for part in _listed(text):
            self._inline(part)
        span, start = table(text), self._length
        for name in ("text", "alternative_text", "expression"):
            if name in span:
                self._inline(span[name])
        place = {"offset": start, "length": self._length - start}
        if span.get("type") in _MARKED and place["length"]:
            self.entities.append({**span, **place})
        elif span.get("url") and place["length"]:
            self.entities.append({"type": "text_link", "url": span["url"], **place})

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += utf16(text)


def _listed(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []

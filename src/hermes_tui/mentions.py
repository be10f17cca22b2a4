"""The files that a text names with @."""

import re

_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|([^\s\"]\S*))")
_PUNCTUATION = ",.;:!?)'\""


def names_in(text: str) -> list[str]:
    """Return the names in their order, each once."""
    names = (quoted or bare.rstrip(_PUNCTUATION) for quoted, bare in _MENTION.findall(text))
    return list(dict.fromkeys(name for name in names if name))


def completed(item: str) -> str:
    """Return a completed name as a text has it: in quotes when it has blanks."""
    return f'@"{item[1:]}"' if " " in item and item.startswith("@") else item

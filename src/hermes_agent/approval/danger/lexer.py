"""Reading the words of a shell script: quotes, variables, substitutions and here-documents."""

import re
from abc import ABC, abstractmethod
from typing import Final

from hermes_agent.approval.danger.syntax import (
    Opaque,
    Part,
    Redirect,
    Script,
    Substitution,
    Text,
    Variable,
    Word,
)

DEEPEST = 40
ENDS_WORD = frozenset(" \t\n;&|<>()")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\$`]+')
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
    "E": "\x1b", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_CODE = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})")
_HIGHEST = 0x10FFFF


class Unclear(Exception):
    """The text is not a shell script, or one beyond this grammar."""


class TooDeep(Unclear):
    """Nested further than is followed."""


class Lexer(ABC):
    """A place in a text, from which words are read; the grammar on top of it reads scripts."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at: int = 0
        self._depth: int = depth
        self._pending: list[Redirect] = []

    @abstractmethod
    def _script(self, closers: tuple[str, ...]) -> tuple[Script, str]:
        """Read commands up to one of the closers, which is taken too."""

    @abstractmethod
    def _of(self, text: str) -> "Lexer":
        """A reader of another text, as deep as this one."""

    @abstractmethod
    def whole(self) -> Script:
        """Read all of the text as a script."""

    def _word(self) -> Word:
        parts: list[Part] = []
        while self._at < len(self._text):
            here = self._text[self._at]
            if here in "<>" and self._text.startswith("(", self._at + 1):
                self._at += 2
                script, _ = self._script((")",))
                parts.append(Substitution(script))
            elif here in ENDS_WORD:
                if here == "(" and parts:
                    raise Unclear("a pattern list")
                break
            else:
                parts += self._piece(here)
        if not parts:
            raise Unclear("a word was expected")
        return tuple(parts)

    def _piece(self, here: str) -> list[Part]:
        if here == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            self._at += 2
            return [] if following == "\n" else [Text(following, quoted=True)]
        if here == "'":
            return [Text(self._until("'"), quoted=True)]
        if here == '"':
            self._at += 1
            return [Text("", quoted=True), *self._double('"')]
        if here == "$":
            return self._dollar(quoted=False)
        if here == "`":
            return [self._backtick()]
        found = _PLAIN.match(self._text, self._at)
        text = found[0] if found else here
        self._at += len(text)
        return [Text(text, quoted=False)]

    def _until(self, mark: str) -> str:
        end = self._text.find(mark, self._at + 1)
        if end < 0:
            raise Unclear(f"no closing {mark}")
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double(self, end: str) -> list[Part]:
        """Return what stands between double quotes, or to the end of the text when `end` is empty."""
        parts: list[Part] = []
        while True:
            here = self._peek()
            if not here and not end:
                return parts
            if not here:
                raise Unclear(f"no closing {end}")
            if here == end:
                self._at += 1
                return parts
            if here == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if following != "\n":
                    escaped = following if following in '$`"\\' else "\\" + following
                    parts.append(Text(escaped, quoted=True))
            elif here == "$":
                parts += self._dollar(quoted=True)
            elif here == "`":
                parts.append(self._backtick())
            else:
                found = _PLAIN_IN_QUOTES.match(self._text, self._at)
                text = found[0] if found else here
                self._at += len(text)
                parts.append(Text(text, quoted=True))

    def _dollar(self, *, quoted: bool) -> list[Part]:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "'" and not quoted:
            self._at += 1
            return [Text(self._ansi(), quoted=True)]
        if following == '"' and not quoted:
            self._at += 2
            return self._double('"')
        if following == "(":
            return self._parenthesised()
        if following == "{":
            return self._parameter(quoted=quoted)
        if following == "[":
            self._at += 2
            return list(self._arithmetic(self._at, "]"))
        self._at += 1
        if found := NAME.match(self._text, self._at):
            self._at = found.end()
            return [Variable(found[0], plain=True, quoted=quoted)]
        if following and following in "@*#?!$-0123456789":
            self._at += 1
            return [Variable(following, plain=True, quoted=quoted)]
        return [Text("$", quoted=True)]

    def _parenthesised(self) -> list[Part]:
        if self._text.startswith("((", self._at + 1):
            begin = self._at
            try:
                return list(self._arithmetic(self._at + 3, "))"))
            except Unclear:
                self._at = begin
        self._at += 2
        script, _ = self._script((")",))
        return [Substitution(script)]

    def _parameter(self, *, quoted: bool) -> list[Part]:
        self._at += 2
        indirect = self._peek() in "!#"
        if indirect:
            self._at += 1
        found = NAME.match(self._text, self._at)
        name = found[0] if found else self._peek()
        self._at += max(len(name), 1)
        begin = self._at
        nested: list[Part] = []
        while self._peek() != "}":
            here = self._peek()
            if not here:
                raise Unclear("no closing }")
            nested += self._inner(here)
        plain = self._at == begin and not indirect
        self._at += 1
        return [Variable(name, plain=plain, quoted=quoted), *nested]

    def _arithmetic(self, begin: int, end: str) -> Word:
        """An expression; what is substituted in it is kept, the rest is a number."""
        self._at = begin
        parts: list[Part] = [Opaque()]
        depth = 0
        while True:
            here = self._peek()
            if not here:
                raise Unclear(f"no closing {end}")
            if depth == 0 and self._text.startswith(end, self._at):
                self._at += len(end)
                return tuple(parts)
            if here == "(":
                depth += 1
                self._at += 1
            elif here == ")":
                if depth == 0:
                    raise Unclear("an unbalanced expression")
                depth -= 1
                self._at += 1
            else:
                parts += self._inner(here)

    def _inner(self, here: str) -> list[Part]:
        """The next piece of an expression, without the characters that mean nothing to us."""
        if here not in "\\'\"$`":
            self._at += 1
            return []
        return [part for part in self._piece(here) if not isinstance(part, Text)]

    def _backtick(self) -> Substitution:
        self._at += 1
        inner: list[str] = []
        while self._peek() != "`":
            here = self._peek()
            if not here:
                raise Unclear("no closing `")
            if here == "\\" and self._text[self._at + 1 : self._at + 2] in ("`", "\\", "$"):
                self._at += 1
                here = self._peek()
            inner.append(here)
            self._at += 1
        self._at += 1
        if self._depth > DEEPEST:
            raise TooDeep("nested too deeply")
        return Substitution(self._of("".join(inner)).whole())

    def _ansi(self) -> str:
        """The text of `$'…'`, its escapes decoded."""
        self._at += 1
        out: list[str] = []
        while True:
            here = self._peek()
            if not here:
                raise Unclear("no closing '")
            self._at += 1
            if here == "'":
                return "".join(out)
            if here != "\\":
                out.append(here)
                continue
            if found := _CODE.match(self._text, self._at):
                digits = found[1] or found[2] or found[3]
                number = int(digits, 16) if digits else int(found[4], 8)
                if number > _HIGHEST:
                    raise Unclear("a character that does not exist")
                out.append(chr(number))
                self._at = found.end()
            else:
                mark = self._peek()
                out.append(_ESCAPES.get(mark, "\\" + mark))
                self._at += 1

    # Blanks

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, *, newlines: bool = False) -> None:
        """Go past blanks, comments and continued lines; past line ends too if asked."""
        while True:
            here = self._peek()
            if here in (" ", "\t") and here:
                self._at += 1
            elif here == "\\" and self._text.startswith("\\\n", self._at):
                self._at += 2
            elif here == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif here == "\n" and newlines:
                self._at += 1
                self._take_documents()
            else:
                return

    def _take_documents(self) -> None:
        """Read the here-documents that begin with this line."""
        pending, self._pending = self._pending, []
        for redirect in pending:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if redirect.operator == "<<-":
                    line = line.lstrip("\t")
                if line == redirect.delimiter:
                    break
                lines.append(line + "\n")
            text = "".join(lines)
            if redirect.literal:
                redirect.body = (Text(text, quoted=True),)
            else:
                redirect.body = tuple(self._of(text).document())

    def document(self) -> list[Part]:
        """The parts of a here-document, in which variables and substitutions work."""
        return self._double("")

"""The grammar of a shell command line, as far as it decides which programs run with which words.

`parse` gives a tree of scripts, chains, pipelines and commands; words keep their parts, so that what a
variable or a substitution will become stays visible as unknown. What this grammar does not cover raises
Unclear, and whoever asked must then treat the text as able to do anything.
"""

import re

from hermes_agent.approval.danger.lexer import DEEPEST, ENDS_WORD, NAME, Lexer, TooDeep, Unclear
from hermes_agent.approval.danger.syntax import (
    Chain,
    Command,
    Compound,
    Opaque,
    Part,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Variable,
    Word,
)

__all__ = ["Unclear", "parse"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\s]*\])?\+?=")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-|<<|<>|<&|>&|>>|>\||&>>|&>|<(?!\()|>(?!\())")
_RESERVED = re.compile(
    r"(if|while|until|for|select|case|function|coproc|\{|\[\[|!|time)(?=[\s;&|<>()]|$)"
)
_FUNCTION = re.compile(r"([^\s'\"\\$`;&|<>()#=]+)[ \t]*\([ \t]*\)")
_NAMED_FUNCTION = re.compile(r"([^\s()]+)(?:[ \t]*\([ \t]*\))?")
_OPENS = {"{": ("}",), "if": ("then",), "while": ("do",), "until": ("do",)}
_FOLLOWS = {
    "then": ("elif", "else", "fi"), "elif": ("then",), "else": ("fi",), "do": ("done",),
}  # fmt: skip


def parse(text: str) -> Script:
    """Read a command line or a script; raises Unclear."""
    return _Parser(text).whole()


class _Parser(Lexer):
    def whole(self) -> Script:
        script, _ = self._script(())
        return script

    def _of(self, text: str) -> Lexer:
        return _Parser(text, self._depth + 1)

    # Lists

    def _script(self, closers: tuple[str, ...]) -> tuple[Script, str]:
        """Chains up to one of the closers, which is taken too; without closers, up to the end."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooDeep("nested too deeply")
        chains: list[Chain] = []
        while True:
            self._skip(newlines=True)
            if closer := self._closer(closers):
                self._at += len(closer)
                self._depth -= 1
                return tuple(chains), closer
            if self._at >= len(self._text):
                if closers:
                    raise Unclear(f"no {closers[0]}")
                self._depth -= 1
                return tuple(chains), ""
            chains.append(self._chain())

    def _closer(self, closers: tuple[str, ...]) -> str:
        for closer in closers:
            if self._text.startswith(closer, self._at):
                after = self._text[self._at + len(closer) : self._at + len(closer) + 1]
                if closer[0] in ");" or not after or after in ENDS_WORD:
                    return closer
        return ""

    def _chain(self) -> Chain:
        pipelines = [self._pipeline()]
        while True:
            self._skip()
            if self._text.startswith(("&&", "||"), self._at):
                self._at += 2
                self._skip(newlines=True)
                pipelines.append(self._pipeline())
                continue
            break
        background = False
        if self._peek() == "&":
            background = True
            self._at += 1
        elif self._peek() == ";" and not self._text.startswith((";;", ";&"), self._at):
            self._at += 1
        elif self._peek() not in ("", "\n", ")", ";"):
            raise Unclear(f"unexpected {self._peek()!r}")
        return Chain(tuple(pipelines), background)

    def _pipeline(self) -> Pipeline:
        commands = [self._command()]
        while True:
            self._skip()
            if self._peek() != "|" or self._text.startswith("||", self._at):
                return Pipeline(tuple(commands))
            self._at += 2 if self._text.startswith("|&", self._at) else 1
            self._skip(newlines=True)
            commands.append(self._command())

    # Commands

    def _command(self) -> Command:
        self._skip()
        if self._text.startswith("((", self._at):
            return self._double_parenthesis()
        if self._peek() == "(":
            self._at += 1
            body, _ = self._script((")",))
            return Compound("(", (body,), self._redirects())
        if found := _FUNCTION.match(self._text, self._at):
            self._at = found.end()
            return self._function(found[1])
        if found := _RESERVED.match(self._text, self._at):
            self._at = found.end()
            return self._reserved(found[1])
        return self._simple()

    def _reserved(self, word: str) -> Command:
        if word in ("!", "time", "coproc"):
            if word == "time" and re.match(r"\s+-p\s", self._text[self._at :]):
                self._at = self._text.index("-p", self._at) + 2
            return self._command()
        if word == "function":
            self._skip()
            found = _NAMED_FUNCTION.match(self._text, self._at)
            if not found:
                raise Unclear("a function without a name")
            self._at = found.end()
            return self._function(found[1])
        if word in ("for", "select"):
            return self._for()
        if word == "case":
            return self._case()
        if word == "[[":
            return self._test()
        bodies: list[Script] = []
        closers = _OPENS[word]
        while closers:
            body, closer = self._script(closers)
            bodies.append(body)
            closers = _FOLLOWS.get(closer, ())
        return Compound(word, tuple(bodies), self._redirects())

    def _function(self, name: str) -> Compound:
        self._skip(newlines=True)
        body = self._command()
        return Compound("function", ((Chain((Pipeline((body,)),), background=False),),), name=name)

    def _for(self) -> Compound:
        self._skip()
        if self._text.startswith("((", self._at):
            words: tuple[Word, ...] = (self._arithmetic(self._at + 2, "))"),)
            name = ""
        else:
            found = NAME.match(self._text, self._at)
            if not found:
                raise Unclear("a loop without a variable")
            name = found[0]
            self._at = found.end()
            self._skip(newlines=True)
            words = ((Variable("@", plain=True, quoted=True),),)
            if self._closer(("in",)):
                self._at += 2
                words = self._words_of_line()
        self._skip()
        if self._peek() == ";":
            self._at += 1
        self._skip(newlines=True)
        opener = self._closer(("do", "{"))
        if not opener:
            raise Unclear("a loop without a body")
        self._at += len(opener)
        body, _ = self._script(("done",) if opener == "do" else ("}",))
        return Compound("for", (body,), self._redirects(), words, name)

    def _words_of_line(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while True:
            self._skip()
            if self._peek() in ("", "\n", ";"):
                return tuple(words)
            if self._peek() in ENDS_WORD:
                raise Unclear("an operator in a list of words")
            words.append(self._word())

    def _case(self) -> Compound:
        self._skip()
        words = [self._word()]
        self._skip(newlines=True)
        if not self._closer(("in",)):
            raise Unclear("a case without in")
        self._at += 2
        bodies: list[Script] = []
        while True:
            self._skip(newlines=True)
            if self._closer(("esac",)):
                self._at += 4
                return Compound("case", tuple(bodies), self._redirects(), tuple(words))
            words += self._case_pattern()
            body, closer = self._script((";;&", ";;", ";&", "esac"))
            bodies.append(body)
            if closer == "esac":
                return Compound("case", tuple(bodies), self._redirects(), tuple(words))

    def _case_pattern(self) -> list[Word]:
        words: list[Word] = []
        if self._peek() == "(":
            self._at += 1
        while True:
            self._skip()
            if self._peek() == ")":
                self._at += 1
                return words
            if self._peek() == "|":
                self._at += 1
                continue
            if self._peek() in ("", "\n", ";", "&", "<", ">", "("):
                raise Unclear("a case pattern that does not end")
            words.append(self._word())

    def _test(self) -> Compound:
        """`[[ … ]]`: only what is substituted in it can run anything."""
        words: list[Word] = []
        while True:
            self._skip(newlines=True)
            if self._closer(("]]",)):
                self._at += 2
                return Compound("[[", (), self._redirects(), tuple(words))
            if not self._peek():
                raise Unclear("no ]]")
            if self._peek() in "&|<>();" and not self._text.startswith(("<(", ">("), self._at):
                self._at += 1
                continue
            words.append(self._word())

    def _double_parenthesis(self) -> Command:
        """Arithmetic to one shell, two subshells to another: read as commands if it can be."""
        begin = self._at
        try:
            self._at += 1
            body, _ = self._script((")",))
            return Compound("(", (body,), self._redirects())
        except TooDeep:
            raise
        except Unclear:
            self._pending.clear()
            word = self._arithmetic(begin + 2, "))")
            return Compound("((", (), self._redirects(), (word,))

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while True:
            self._skip()
            redirect = self._redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self._skip()
            redirect = self._redirect()
            if redirect is not None:
                redirects.append(redirect)
                continue
            here = self._peek()
            if here in ("", "\n", ";", "&", "|", ")"):
                break
            if here == "(":
                raise Unclear("a parenthesis after a word")
            found = None if words else _ASSIGNMENT.match(self._text, self._at)
            if found:
                self._at = found.end()
                assignments.append((found[1], self._assigned()))
            else:
                words.append(self._word())
        if not (assignments or words or redirects):
            raise Unclear(f"no command before {self._peek()!r}")
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _assigned(self) -> Word:
        if self._peek() != "(":
            return () if self._peek() in ENDS_WORD else self._word()
        self._at += 1
        parts: list[Part] = [Opaque()]
        while True:
            self._skip(newlines=True)
            if self._peek() == ")":
                self._at += 1
                return tuple(parts)
            if self._peek() in ("", ";", "&", "|", "("):
                raise Unclear("a list that does not end")
            parts += self._word()

    def _redirect(self) -> Redirect | None:
        found = _REDIRECT.match(self._text, self._at)
        if not found:
            return None
        self._at = found.end()
        self._skip()
        if self._peek() in ("", "\n", ";", "&", "|", ")"):
            raise Unclear("a redirection to nowhere")
        begin = self._at
        redirect = Redirect(found[1], self._word())
        if found[1] in ("<<", "<<-"):
            raw = self._text[begin : self._at]
            redirect.literal = any(mark in raw for mark in "'\"\\")
            redirect.delimiter = re.sub(r"[\"'\\]", "", raw)
            self._pending.append(redirect)
        return redirect

"""Find what a shell command line would do that needs approval.

The line is parsed, every program in it is found, also inside substitutions, groups, `sh -c`, `env`,
`xargs` and the like, and each is judged by the rule for its name. What cannot be worked out before it
runs is a reason to ask in itself; a script file is looked into, but only for what is plain in it.
"""

import glob
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hermes_agent.approval.danger import code, places, shell, syntax
from hermes_agent.approval.danger.kinds import NO_ACCESS, Access, Danger, Kind, Loss, access_of
from hermes_agent.approval.danger.rules import judge, judge_assignment, reveals_content
from hermes_agent.approval.danger.run import UNKNOWN, Run, Value, run_of
from hermes_agent.approval.danger.variables import Variables
from hermes_core.text import one_line, truncate

_MAX_CHARACTERS = 200_000
"""Of a script file that is looked into."""
_DEEPEST = 6
_MAX_REASON = 400
_MAX_MATCHES = 100
_MAX_PATTERNS = 4
"""Parts of one path that are patterns."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY)S?(?:_|$)",
    re.IGNORECASE,
)
_UNCLEAR = "terminal:unclear "
_PATTERN = re.compile(r"[*?]|\[[^\]]+\]|\{.*(?:,|\.\.).*\}")
_GOES_THROUGH = frozenset({
    "tar", "bsdtar", "zip", "7z", "cp", "rsync", "scp", "grep", "egrep", "rg", "ag", "cpio", "gzip",
})  # fmt: skip
_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_MADE_ANEW = frozenset({
    "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".tox", ".nox", ".hypothesis",
    "build", "dist", "target", "node_modules", "htmlcov", "coverage", ".coverage", ".eggs", "out",
    ".next", ".cache", ".parcel-cache", "tmp", "temp",
})  # fmt: skip
"""Folders that tools make again; deleting one inside the workspace loses nothing."""


def of_command(command: str, cwd: str, place: places.Place) -> list[Danger]:
    """Every reason to ask before this command line runs in `cwd`; empty for everyday commands."""
    state = _State(command, [cwd])
    _Examiner(place, state).examine(command)
    return list(state.found.values())


def of_code(source: str, cwd: str, place: places.Place) -> list[Danger]:
    """Every reason to ask before this Python code runs in `cwd`."""
    state = _State(source, [cwd])
    code.examine(source, _Examiner(place, state))
    return list(state.found.values())


class Lines(NamedTuple):
    """The programs of a command line, each as a line."""

    own: list[str]
    """Those that stand in it."""
    all: list[str]
    """Those and what they run in their turn."""
    is_plain: bool
    """Whether nothing in it writes to files or is known only when it runs."""


def lines_of(command: str) -> Lines:
    """The programs that a command line runs."""
    state = _State(command, ["/"])
    _Examiner(places.Place("/", "/nowhere"), state).examine(command)
    unclear = any(key.startswith(_UNCLEAR) for key in state.found)
    return Lines(state.own, [*state.own, *state.lines], not unclear and not state.redirects)


@dataclass
class _State:
    """Collects the dangers of a command line and of every script inside it."""

    whole: str
    cwds: list[str]
    """Every folder it may be in by now: whether a `cd` has worked is not known before."""
    is_lost: bool = False
    """Whether it may be in any folder at all."""
    commands: int = 0
    """How many commands stand before the one that is judged."""
    redirects: int = 0
    """How many streams go to files."""
    own: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    written: set[str] = field(default_factory=set[str])
    found: dict[str, Danger] = field(default_factory=dict[str, Danger])


class _Examiner:
    """Walks a script and collects dangers; it is the Report that rules tell."""

    def __init__(
        self, place: places.Place, state: _State, *, strict: bool = True, depth: int = 0
    ) -> None:
        self._place = place
        self._state = state
        self._strict = strict
        """Whether what cannot be worked out counts; not so inside script files, full of variables."""
        self._depth = depth
        self._variables = Variables(())

    def examine(self, text: str) -> None:
        """Look at a script."""
        if self._depth > _DEEPEST:
            self.doubt("Scripts within scripts, too deep to follow.")
            return
        try:
            script = shell.parse(text)
        except (shell.Unclear, RecursionError) as error:
            self.doubt(f"This is not a shell command that can be parsed: {error}.")
            return
        outer, self._variables = self._variables, Variables(script)
        self._script(script, sure=True)
        self._variables = outer

    # Walking

    def _script(self, script: syntax.Script, *, sure: bool) -> None:
        for chain in script:
            for position, pipeline in enumerate(chain.pipelines):
                alone = len(pipeline.commands) == 1 and not chain.background
                for stage, command in enumerate(pipeline.commands):
                    certain = sure and alone and position == 0
                    self._command(command, sure=certain, is_fed=stage > 0)

    def _command(self, command: syntax.Command, *, sure: bool, is_fed: bool) -> None:
        if isinstance(command, syntax.Simple):
            self._simple(command, sure=sure, is_fed=is_fed)
            return
        for word in command.words:
            self._value(word)
        self._document(command.redirects)
        if command.kind == "function" and _calls_itself(command):
            self.danger(
                "destructive",
                "A function that starts itself again and again.",
                "terminal:fork bomb",
            )
        items = [self._value(word) for word in command.words] if command.kind == "for" else []
        with self._variables.looping(command.name if items else "", items):
            for body in command.bodies:
                self._script(body, sure=sure and command.kind == "{")

    def _simple(self, command: syntax.Simple, *, sure: bool, is_fed: bool) -> None:
        document = self._document(command.redirects)
        for name, word in command.assignments:
            value = self._value(word)
            judge_assignment(name, value, self)
            if sure and not command.words:
                self._variables.learn(name, value)
        words = [self._value(word) for word in command.words]
        if words:
            fed = is_fed or any(r.operator.startswith("<") for r in command.redirects)
            run = run_of(words, is_fed=fed, document=document)
            self._state.own.append(" ".join(word.display_text for word in words))
            self._run(run, words[0])
            self._state.commands += words[0].text not in ("cd", "export", "set")

    def _document(self, redirects: Sequence[syntax.Redirect]) -> Value | None:
        """Judge where streams go; returns the text that is fed in from the script itself."""
        document = None
        for redirect in redirects:
            if redirect.body is not None:
                document = self._value(redirect.body)
                continue
            target = self._value(redirect.target)
            if redirect.operator == "<<<":
                document = target
            elif target.text.startswith(("/dev/tcp/", "/dev/udp/")):
                self.danger(
                    "exfiltration",
                    f"Opens a connection: {target.display_text}.",
                    "terminal:/dev/tcp",
                )
            elif redirect.operator in _WRITING and not re.fullmatch(r"\d+-?|-", target.text):
                self._state.redirects += target.text != "/dev/null"
                self.writes(target)
            elif redirect.operator == "<":
                self.reads(target)
        return document

    def _run(self, run: Run, program: Value) -> None:
        self._state.lines.append(run.line)
        if program.is_open or program.is_pattern:
            self.doubt(f"Which program runs is only known when it runs: {program.display_text}.")
            return
        if run.name in ("cd", "pushd", "popd", "chdir"):
            self._change_folder(run)
        if reveals_content(run):
            self._look_for_secrets(run)
        judge(run, program, self)

    def _change_folder(self, run: Run) -> None:
        operands = run.operands()
        if run.name == "popd" or (operands and operands[0].text == "-"):
            return  # back to one that is known already
        target = operands[0] if operands else Value(places.own_home())
        if target.is_open or target.is_pattern:
            self._state.is_lost = True
            return
        for folder in [places.resolve(target.text, cwd) for cwd in self._state.cwds]:
            if folder not in self._state.cwds:
                self._state.cwds.append(folder)

    def _look_for_secrets(self, run: Run) -> None:
        for value in run.args:
            for text in _paths_in(value.text):
                self.reads(value._replace(text=text))
                if run.name in _GOES_THROUGH:
                    self._goes_through(value._replace(text=text))

    def _goes_through(self, value: Value) -> None:
        """A whole tree is read: dangerous when it holds the places of secrets."""
        for path in self._paths(value) if not value.is_open else ():
            if places.holds_secrets_below(path, self._place):
                reason, access = (
                    f"Reads all of {path}, secrets included.",
                    places.access_to_read(path),
                )
                self.danger("secrets", reason, f"read:{path}", access)

    # Words

    def _value(self, word: syntax.Word) -> Value:
        text, is_pattern, runs = "", False, False
        for position, part in enumerate(word):
            if isinstance(part, syntax.Text):
                piece = part.text
                if not part.quoted and position == 0:
                    piece = places.expand(piece)
                is_pattern |= not part.quoted and bool(_PATTERN.search(part.text))
                text += piece
            elif isinstance(part, syntax.Variable):
                self._notice_secret(part.name)
                value = self._variables.value(part)
                text += value.text
                is_pattern |= value.is_pattern
            else:
                runs |= isinstance(part, syntax.Substitution)
                if isinstance(part, syntax.Substitution):
                    self._script(part.script, sure=False)
                text += UNKNOWN
        return Value(text, is_pattern, runs)

    def _notice_secret(self, name: str) -> None:
        if _SECRET_NAME.search(name):
            self.danger("secrets", f"Uses the secret ${name}.", f"terminal:${name}")

    # Telling: what rules call

    @property
    def folders(self) -> Sequence[str]:
        return self._state.cwds

    def danger(
        self,
        kind: Kind,
        reason: str,
        key: str,
        access: Access = NO_ACCESS,
        loss: Loss | None = None,
    ) -> None:
        text = truncate(one_line(reason).removesuffix("."), _MAX_REASON)
        self._add([Danger(kind, text, one_line(key), access, loss=loss)])

    def loss_of(self, value: Value, *, is_tracked: bool = False) -> Loss | None:
        if value.is_open or value.is_pattern or self._state.is_lost:
            return None
        paths = tuple(self._paths(value))
        is_own = all(places.is_under(path, self._place.workspace) for path in paths)
        return Loss(paths, is_tracked) if is_own else None

    def doubt(self, reason: str, *, certain: bool = False) -> None:
        if self._strict or certain:
            digest = hashlib.sha256(self._state.whole.encode("utf-8", "replace")).hexdigest()[:16]
            self.danger("remote_code", reason, f"{_UNCLEAR}{digest}")

    def assigns(self, value: Value) -> None:
        name, _, text = value.text.partition("=")
        judge_assignment(name, value._replace(text=text), self)

    def writes(self, value: Value, *, removes: bool = False) -> None:
        folder = _folder(value)
        if value.is_open and (not folder or ".." in value.text):
            self.doubt(f"Writes to a place that is only known when it runs: {value.display_text}.")
            return
        target = value._replace(text=f"{folder}/x") if value.is_open else value
        for path in self._paths(target):
            self._state.written.add(path)
            if value.is_open:  # nobody can be asked about a path that is not known
                self._add(
                    [d._replace(access=NO_ACCESS) for d in places.of_write(path, self._place)]
                )
            else:
                self._changes(path, removes=removes)

    def _changes(self, path: str, *, removes: bool) -> None:
        access = places.access_to_change(path, self._place, removes=removes)
        self._add([d._replace(access=access) for d in places.of_write(path, self._place)])

    def reads(self, value: Value) -> None:
        if value.is_open:
            return
        for path in self._paths(value):
            self._add(places.of_read(path, self._place))

    def deletes(self, value: Value, *, recursively: bool) -> None:
        if value.is_open:
            self.doubt(f"What is deleted is only known when it runs: {value.display_text}.")
        elif value.is_pattern and re.search(r"(?:^|/)[.*?]*$", value.text):
            key = f"terminal:rm {value.text}"
            self.danger("destructive", f"Deletes everything: {value.text}.", key)
        else:
            loss = self.loss_of(value)
            for path in self._paths(value, places.resolve_entry):
                self._deletes_path(path, loss, recursively=recursively)

    def _deletes_path(self, path: str, loss: Loss | None, *, recursively: bool) -> None:
        if places.is_temporary(path, self._place):
            return
        if not places.is_inside(path, self._place) or places.is_broad(path, self._place):
            what = f"{path} and all below it" if recursively else path
            access = places.access_to_change(path, self._place, removes=True)
            self.danger("destructive", f"Deletes {what}.", f"terminal:rm {path}", access)
            return
        self._changes(path, removes=True)
        if recursively and Path(path).name not in _MADE_ANEW and not os.path.isfile(path):  # noqa: PTH113 -- never raises
            reason = f"Deletes {path} and all below it."
            self.danger("destructive", reason, "terminal:rm -r", loss=loss)

    def runs(self, words: Sequence[Value], *, is_fed: bool = False) -> None:
        if words:
            self._run(run_of(words, is_fed=is_fed), words[0])

    def runs_script(self, value: Value) -> None:
        if value.is_open:
            self.doubt("Runs a script that is only known when it runs.", certain=value.runs)
        else:
            self._inside(strict=self._strict).examine(value.text)

    def runs_python(self, value: Value) -> None:
        if value.is_open:
            self.doubt("Runs Python that is only known when it runs.")
        else:
            code.examine(value.text, self)

    def runs_file(self, value: Value) -> None:
        self._runs_file(value, is_python=False)

    def runs_python_file(self, value: Value) -> None:
        self._runs_file(value, is_python=True)

    def _runs_file(self, value: Value, *, is_python: bool) -> None:
        """Look into a script file; one that the commands before may make hides what it does."""
        if value.is_open:
            self.doubt("Runs a script that is only known when it runs.")
            return
        paths = list(self._paths(value))
        missing = not any(map(os.path.exists, paths))
        if self._state.written.intersection(paths) or (missing and self._state.commands):
            self.doubt(f"Runs {value.display_text}, which is not there yet to be looked into.")
        for path in paths:
            text = "" if places.is_of_system(path) else _text_of(path)
            if is_python or re.match(r"#!.*python", text):
                code.examine(text, self._inside(strict=False))
            elif re.match(r"#!.*sh\b|(?!#!)", text):
                self._inside(strict=False).examine(text)

    def _inside(self, *, strict: bool) -> "_Examiner":
        """An examiner for a script within this one, which adds to the same state."""
        return _Examiner(self._place, self._state, strict=strict, depth=self._depth + 1)

    def _add(self, dangers: Sequence[Danger]) -> None:
        for danger in dangers:
            known = self._state.found.setdefault(danger.key, danger)
            if known != danger:  # told once, with all that it takes
                access = access_of([known, danger])
                loss = known.loss and known.loss.and_also(danger.loss)
                self._state.found[danger.key] = known._replace(access=access, loss=loss)

    def _paths(
        self, value: Value, resolve: Callable[[str, str], str] = places.resolve
    ) -> Iterator[str]:
        """Every path that the word may mean, in every folder it may run in."""
        if self._state.is_lost and not value.text.startswith("/"):
            self.doubt(f"Works in a folder that is only known when it runs: {value.display_text}.")
        for text in _braces(value.text) if value.is_pattern else [value.text]:
            for cwd in self._state.cwds:
                yield resolve(text, cwd)
                if value.is_pattern and glob.has_magic(text):
                    if len(list(filter(glob.has_magic, text.split("/")))) > _MAX_PATTERNS:
                        self.doubt(f"A pattern too wide to look through: {value.display_text}.")
                        continue
                    matches = glob.iglob(text, root_dir=cwd)  # noqa: PTH207 -- may be absolute
                    for match in itertools.islice(matches, _MAX_MATCHES):
                        yield resolve(match, cwd)


def _folder(value: Value) -> str:
    """The folder of what is known of a path."""
    return os.path.dirname(value.text.partition(UNKNOWN)[0])  # noqa: PTH120 -- a word, not a file


def _paths_in(text: str) -> Iterator[str]:
    """Return what of a word may be a path: all of it, or what follows `=`, `@` or `:`."""
    if re.search(r"\s", text):
        return
    if not text.startswith("-"):
        yield text
    for rest in re.split(r"[=@:]", text)[1:]:
        if rest:
            yield rest


def _braces(text: str) -> list[str]:
    """The words that `{a,b}` stands for; nested or unusual ones are left as they are."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if not found:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    choices = found[1].split(",")[:_MAX_MATCHES]
    return [word for choice in choices for word in _braces(f"{before}{choice}{after}")][
        :_MAX_MATCHES
    ]


def _text_of(path: str) -> str:
    """The text of a script; empty when it is too large, no text, or not there."""
    try:
        if Path(path).is_file() and Path(path).stat().st_size <= _MAX_CHARACTERS:
            return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    return ""


def _calls_itself(function: syntax.Compound) -> bool:
    """Return whether a function starts itself in the background or in a pipe: it would never end."""
    for body in function.bodies:
        for chain in _chains(body):
            several = chain.background or any(len(p.commands) > 1 for p in chain.pipelines)
            if several and any(
                isinstance(c, syntax.Simple)
                and c.words
                and c.words[0] == (syntax.Text(function.name, quoted=False),)
                for c in syntax.walk((chain,))
            ):
                return True
    return False


def _chains(script: syntax.Script) -> Iterator[syntax.Chain]:
    for chain in script:
        yield chain
        for pipeline in chain.pipelines:
            for command in pipeline.commands:
                if isinstance(command, syntax.Compound):
                    for body in command.bodies:
                        yield from _chains(body)

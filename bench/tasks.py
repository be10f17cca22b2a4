"""Twenty tasks for a small model with tools: what lies in the folder, what is asked, what must come out.

A task is judged by the files and by facts that only the files hold, never by the model's word for it.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Check = Callable[[Path, str], bool]


class Task(NamedTuple):
    """One request, with its own folder."""

    name: str
    ask: str
    files: Mapping[str, str]
    check: Check
    """Looks at the folder and the reply."""
    is_question: bool = False
    """Nothing in the folder may be other than it was."""

    def is_done(self, folder: Path, reply: str) -> bool:
        if self.is_question and _contents(folder) != dict(self.files):
            return False
        return self.check(folder, reply)


def _text(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _says(*facts: str) -> Check:
    def check(_folder: Path, reply: str) -> bool:
        return all(re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", reply, re.I) for fact in facts)

    return check


def _lines(folder: Path, name: str) -> list[str]:
    return [line.strip() for line in _text(folder, name).splitlines() if line.strip()]


def _contents(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text("utf-8", "replace") for path in paths}


def _runs(folder: Path, code: str, printed: str) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=20,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and done.stdout.strip() == printed


_CONFIG = "[server]\nhost = 127.0.0.1\nport = 8080\ndebug = false\n"
_LOG = "".join(
    f"2031-04-11 {'ERROR' if n % 5 in (1, 3) else 'INFO'} request {7000 + n}\n" for n in range(57)
)
_ANIMALS = {
    "fruits.txt": "apple\nbanana\ncherry\n",
    "animals.txt": "lion\nzebra\ntiger\n",
    "colors.txt": "red\ngreen\nblue\n",
}
_NAMES = {"alpha.txt": "1\n", "beta.md": "2\n", "gamma.py": "print(3)\n"}
_CSV = "id,name\n" + "".join(f"{n},item{n}\n" for n in range(1, 37))


TASKS = (
    Task(
        "create",
        "Create a file hello.txt with the text: Hello world",
        {},
        lambda folder, _: _text(folder, "hello.txt").strip() == "Hello world",
    ),
    Task(
        "read",
        "What is the launch code in secret.txt?",
        {"secret.txt": "Project Heron\nlaunch code: ORCHID-7731\n"},
        _says("ORCHID-7731"),
        is_question=True,
    ),
    Task(
        "edit",
        "In config.ini change the port from 8080 to 9090.",
        {"config.ini": _CONFIG},
        lambda folder, _: _text(folder, "config.ini") == _CONFIG.replace("8080", "9090"),
    ),
    Task(
        "search",
        "Which file in this folder contains the word zebra?",
        _ANIMALS,
        lambda _folder, reply: "animals.txt" in reply and "fruits.txt" not in reply,
        is_question=True,
    ),
    Task(
        "count-lines",
        "How many lines does data.csv have?",
        {"data.csv": _CSV},
        _says("37"),
        is_question=True,
    ),
    Task(
        "rename",
        "Rename draft.txt to final.txt",
        {"draft.txt": "chapter one\n"},
        lambda folder, _: (
            _text(folder, "final.txt") == "chapter one\n" and not (folder / "draft.txt").exists()
        ),
    ),
    Task(
        "run",
        "Run the script build.sh and tell me the build id that it prints.",
        {"build.sh": 'echo "build id: $((6 * 7011))"\n'},
        _says("42066"),
        is_question=True,
    ),
    Task(
        "delete",
        "Delete the file old.log",
        {"old.log": "x\n", "new.log": "y\n"},
        lambda folder, _: not (folder / "old.log").exists() and _text(folder, "new.log") == "y\n",
    ),
    Task(
        "list",
        "Which files are in this folder?",
        _NAMES,
        _says(*_NAMES),
        is_question=True,
    ),
    Task(
        "small-talk",
        "Hello! Nice to meet you.",
        {"notes.txt": "nothing\n"},
        lambda _folder, reply: bool(reply.strip()),
        is_question=True,
    ),
    Task(
        "knowledge",
        "What is the capital of France?",
        {},
        _says("Paris"),
        is_question=True,
    ),
    Task(
        "append",
        "Add the line 'buy milk' at the end of todo.txt",
        {"todo.txt": "call Ana\npay rent\n"},
        lambda folder, _: _lines(folder, "todo.txt") == ["call Ana", "pay rent", "buy milk"],
    ),
    Task(
        "make-folder",
        "Make a folder named reports and put an empty file index.txt into it.",
        {},
        lambda folder, _: (folder / "reports" / "index.txt").is_file(),
    ),
    Task(
        "copy",
        "Copy notes.txt to backup.txt",
        {"notes.txt": "remember the milk\nand the bread\n"},
        lambda folder, _: (
            _text(folder, "notes.txt")
            == _text(folder, "backup.txt")
            == "remember the milk\nand the bread\n"
        ),
    ),
    Task(
        "write-code",
        "Write a Python file square.py with a function square(n) that returns n times n.",
        {},
        lambda folder, _: _runs(folder, "from square import square; print(square(12))", "144"),
    ),
    Task(
        "read-in-folder",
        "Who is the owner of the project according to docs/info.md?",
        {"docs/info.md": "# Info\n\nOwner: Marta Silva\nSince: 2019\n"},
        _says("Marta Silva"),
        is_question=True,
    ),
    Task(
        "read-json",
        "Which version of the package is in package.json?",
        {"package.json": '{\n  "name": "heron",\n  "version": "4.19.2",\n  "private": true\n}\n'},
        _says("4.19.2"),
        is_question=True,
    ),
    Task(
        "two-steps",
        "Read prices.txt and write the name of the most expensive fruit into best.txt",
        {"prices.txt": "apple 3\nmango 9\npear 4\n"},
        lambda folder, _: (
            "mango" in _text(folder, "best.txt") and "apple" not in _text(folder, "best.txt")
        ),
    ),
    Task(
        "count-matches",
        "How many lines of server.log contain ERROR?",
        {"server.log": _LOG},
        _says("23"),
        is_question=True,
    ),
    Task(
        "fix-code",
        "The function add in calc.py subtracts instead of adding. Fix it.",
        {"calc.py": "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return 2 * a\n"},
        lambda folder, _: _runs(folder, "import calc; print(calc.add(2, 3), calc.twice(4))", "5 8"),
    ),
)

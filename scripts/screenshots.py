"""The pictures of docs/images: the real interface and the real server, with a scripted model.

`make screenshots` takes them; the same code gives the same pictures. SCENES says what is done until a
picture is taken, and what the model says meanwhile.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import TextArea

from hermes_agent.models.base import Usage
from hermes_agent.models.embedded import catalog
from hermes_agent.testing.scripted import Step, call, say, together
from hermes_agent.testing.server import Play, ScriptedServer
from hermes_core.paths import Home
from hermes_tui.app import HermesApp
from hermes_tui.entries import Call, Thought
from hermes_tui.opening import Opening
from hermes_tui.transport import ChildTransport

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 30.0
MODEL = "scripted-1"
USAGE = Usage(input_tokens=4100, output_tokens=320)
GREETER = 'def greet(name):\n    print("hello " + name)\n    return name\n'
TEST = "from greet import greet\n\ndef test_greet():\n    assert greet('you') == 'you'\n"
ANSWER = """\
Done: the greeting uses an **f-string** now and ends with an exclamation mark. Try it:

```python
from greet import greet

greet("world")  # Hello, world!
```

The test still passes, because `greet` returns the name as before.
"""


class Tour:
    """A running interface: what is done in it, and pictures of it."""

    def __init__(self, app: HermesApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so; otherwise show what there is instead."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():
                    await self.pilot.pause(0.02)
        except TimeoutError:
            sys.exit(f"What was waited for did not come:\n{self.screen}")

    async def sees(self, *texts: str) -> None:
        """Wait until all of this is on the screen."""
        await self.until(lambda: all(text in self.screen for text in texts))

    async def send(self, text: str) -> None:
        self.app.chat.composer.recall(text)
        await self.pilot.press("enter")

    async def say(self, text: str, answer: str) -> None:
        """Send a text and wait for the end of its turn."""
        await self.send(text)
        await self.sees(answer, "● ready")
        await self.pilot.pause()

    @property
    def screen(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    async def settle(self) -> None:
        """Remove from the screen what differs from one time to the next."""
        for field in (f for screen in self.app.screen_stack for f in screen.query(TextArea)):
            field.cursor_blink = False
        for entry in self.app.chat.turn_view.transcript.entries:
            if isinstance(entry, Call | Thought) and entry.seconds is not None:
                entry.seconds = 0.2
                await self.app.tabs.current.transcript.changed(entry)
        self.app.session.conversation.began_at = None
        self.app.chat.status.tell()
        await self.pilot.pause()

    async def picture(self) -> str:
        """Return what is on the screen."""
        await self.settle()
        drawn = self.app.export_screenshot()
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
        return re.sub(r"terminal-\d+", "terminal", drawn)


# -- the scenes ------------------------------------------------------------------------------------


async def welcome(tour: Tour) -> None:
    await tour.sees(f"{MODEL} answers")


async def chat(tour: Tour) -> None:
    await tour.say("Make the greeting friendlier, and run the test.", "returns the name as before")


async def approval(tour: Tour) -> None:
    await tour.send("Clean up what the build has left.")
    await tour.sees("Allow this command?", "a key, then Enter")


async def waiting(tour: Tour) -> None:
    await tour.send("Run everything.")
    await tour.sees("running 3 of 40")
    await tour.send("Then look at the linter.")
    await tour.send("And write down what you changed.")
    await tour.sees("next", "then", "edits one")
    tour.app.chat.composer.insert("Meanwhile I write the next one")


async def conversations(tour: Tour) -> None:
    for title, question in (
        ("Holiday in June", "Where is it warm in June?"),
        ("The broken build", "Why does the build fail?"),
        ("A friendlier greeting", "How do I read a file, line by line?"),
    ):
        await tour.say(question, "answer to that")
        await tour.send(f"/title {title}")
        await tour.until(lambda title=title: tour.app.session.conversation.info.title == title)
        if title != "A friendlier greeting":
            await tour.pilot.press("ctrl+n")
            await tour.sees("Keyboard shortcuts")
    await tour.pilot.press("f3")
    await tour.sees("Holiday in June", "The broken build", "answer to that")


async def tree(tour: Tour) -> None:
    await tour.say("How do I read a file, line by line?", "answer to that")
    await tour.send("/title Reading files")
    await tour.until(lambda: tour.app.session.conversation.info.title == "Reading files")
    await tour.send("/branch The same in Rust")
    await tour.until(lambda: tour.app.session.conversation.info.title == "The same in Rust")
    await tour.pilot.press("f5")
    await tour.sees("← here")


async def keys(tour: Tour) -> None:
    await tour.sees("● ready")
    await tour.pilot.press("f1")
    await tour.sees("Complete / and @")


async def fetching(tour: Tour) -> None:
    await tour.sees("There is no model yet", "a key, then Enter")
    await tour.pilot.press("enter")
    await tour.sees("40%")
    await tour.send("Which files are in this folder?")
    await tour.sees("waiting for a model")


Scene = Callable[[Tour], Awaitable[None]]
Script = Iterable[Play]


def told(*steps: Step) -> list[Play]:
    return list(steps)


ANSWERS = told(*(say("This is the answer to that.", usage=USAGE) for _ in range(4)))
CHANGE = told(
    together(
        say("", reasoning="First the file, then the change, then the test."),
        say("I look at it first."),
        call("read_file", path="greet.py"),
    ),
    call(
        "patch",
        path="greet.py",
        old='    print("hello " + name)',
        new='    text = f"Hello, {name}!"\n    print(text)',
    ),
    call("terminal", command="python3 -c 'import greet; print(greet.greet(1) == 1)'"),
    say(ANSWER, usage=USAGE),
)
COUNTING = "for i in 1 2 3; do echo running $i of 40; done; sleep 600"

SCENES: dict[str, tuple[Scene, Script, tuple[int, int]]] = {
    "welcome": (welcome, [], (80, 24)),
    "chat": (chat, CHANGE, (96, 37)),
    "approval": (approval, told(call("terminal", command="rm -rf ../old-builds")), (80, 24)),
    "waiting": (waiting, told(call("terminal", command=COUNTING)), (80, 24)),
    "conversations": (conversations, ANSWERS, (100, 24)),
    "tree": (tree, ANSWERS, (80, 20)),
    "keys": (keys, [], (80, 38)),
    "fetching": (fetching, [], (80, 24)),
}


# -- taking them -------------------------------------------------------------------------------------


def take(name: str) -> str:
    """The picture of one scene."""
    scene, script, size = SCENES[name]
    with world() as folder:
        if name == "fetching":
            with _slow_hub(folder) as hub:
                return asyncio.run(_played(scene, folder, size, HERMES_MODEL_HUB=hub))
        with ScriptedServer(script, models={MODEL: {"context_length": 32_000}}) as model:
            key = {"OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "sk-of-the-screenshots"}
            return asyncio.run(_played(scene, folder, size, **key))


@contextlib.contextmanager
def world() -> Generator[Path]:
    """A home with a small project; what is shown of the path is the same everywhere."""
    folder = Path(tempfile.gettempdir()) / "hermes-tour"
    shutil.rmtree(folder, ignore_errors=True)
    project = folder / "greeter"
    project.mkdir(parents=True)
    (project / "greet.py").write_text(GREETER)
    (project / "test_greet.py").write_text(TEST)
    (folder / "old-builds").mkdir()
    os.environ["HOME"] = str(folder)  # the interface writes it as ~
    yield folder
    shutil.rmtree(folder)


async def _played(scene: Scene, folder: Path, size: tuple[int, int], **set_up: str) -> str:
    async with running(folder, size, set_up) as tour:
        await scene(tour)
        picture = await tour.picture()
        await tour.app.action_leave()
        return picture


@contextlib.asynccontextmanager
async def running(
    folder: Path, size: tuple[int, int], set_up: dict[str, str]
) -> AsyncGenerator[Tour]:
    home = Home(folder / ".hermes")
    surroundings = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HERMES_HOME": str(home.root),
        "HERMES_AGENT_TITLES": "false",
        "LANG": "C.UTF-8",
        **set_up,
    }
    values = [f"{name}={value}" for name, value in surroundings.items()]
    command = ["env", "-i", *values, sys.executable, "-m", "tui_gateway.entry"]
    opening = Opening(cwd=str(folder / "greeter"))
    app = HermesApp(lambda: ChildTransport.start(command), home.create(), opening)
    async with app.run_test(size=size) as pilot:
        tour = Tour(app, pilot)
        await tour.until(lambda: app.is_loaded and app.session.conversation.state == "ready")
        has_model = "OPENAI_API_KEY" in set_up
        await tour.until(lambda: app.session.conversation.info.sandbox or not has_model)
        yield tour


@contextlib.contextmanager
def _slow_hub(folder: Path) -> Generator[str]:
    """A model hub that has brought two fifths of the file and brings no more."""
    entry = catalog.entries()[0]
    have, over = int(entry.bytes * 0.4), threading.Event()
    partial = folder / ".hermes" / "models" / f".{entry.name}.part"
    partial.parent.mkdir(parents=True)
    partial.touch()
    os.truncate(partial, have)

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {have}-{entry.bytes - 1}/{entry.bytes}")
            self.send_header("Content-Length", str(entry.bytes - have))
            self.end_headers()
            self.wfile.write(bytes(1_000_000))
            over.wait()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    over.set()
    server.shutdown()
    server.server_close()


def main(names: list[str]) -> None:
    """Take the named pictures, or all."""
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    for name in names or SCENES:
        (folder / f"{name}.svg").write_text(take(name), "utf-8")
        print(f"docs/images/{name}.svg: written")


if __name__ == "__main__":
    main(sys.argv[1:])

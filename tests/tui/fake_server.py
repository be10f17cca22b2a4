"""A server that speaks the protocol over its pipes and plays a script: the double of tui_gateway.

`python fake_server.py FOLDER` keeps its conversations in FOLDER, so that the next process finds
them. What a prompt says decides what happens, see SCRIPTS; every other prompt is repeated. It is an
ordinary process: tests kill it, and it kills itself when it is told to. `python fake_server.py
FOLDER SOCKET` serves one client after the other on a socket, and keeps the events of the
conversations for those that come back.
"""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

Json = dict[str, Any]

MARKDOWN = """\
Two ways to read a file, **shortest first**:

1. `Path.read_text` reads it *whole*.
2. A loop reads it line by line.

```python
from pathlib import Path

def shout(name: str) -> str:
    return Path(name).read_text("utf-8").upper()
```

| way | memory |
| --- | --- |
| whole | all of it |
| loop | one line |

> Replace <name> with yours, see [the manual](https://example.org/manual).
"""

DIFF = """\
--- a/greet.py
+++ b/greet.py
@@ -1,3 +1,4 @@
 def greet(name):
-    print("hello " + name)
+    text = f"Hello, {name}!"
+    print(text)
     return name
"""

NOW = 1_790_000_000.0


def event(name: str, /, **payload: Any) -> Json:
    return {"event": name, "payload": payload}


def streamed(text: str) -> Iterator[Json]:
    for start in range(0, len(text), 7):
        yield event("message.delta", text=text[start : start + 7])


def wait(what: str) -> Json:
    return {"wait": what}


def markdown(_text: str) -> Iterator[Json]:
    yield event("reasoning.delta", text="The person wants to read a file. ")
    yield event("reasoning.delta", text="I show both ways.")
    yield from streamed(MARKDOWN)


def tool(_text: str) -> Iterator[Json]:
    yield from streamed("I look first, then I change it.")
    yield event("message.interim", text="I look first, then I change it.", already_streamed=True)
    yield event(
        "tool.start", tool_id="t1", name="terminal", context="pytest -q tests/test_greet.py"
    )
    yield event("tool.progress", tool_id="t1", text="collected 2 items\n")
    yield event("tool.progress", tool_id="t1", text="\x1b[32mtests/test_greet.py ..\x1b[0m\n")
    result = "collected 2 items\ntests/test_greet.py ..\n2 passed"
    yield event("tool.complete", tool_id="t1", name="terminal", result=result, duration_s=1.25)
    yield event("tool.start", tool_id="t2", name="patch", context="greet.py")
    yield event("tool.complete", tool_id="t2", name="patch", duration_s=0.02, inline_diff=DIFF)
    yield event("tool.start", tool_id="t3", name="read_file", context="missing.txt")
    failed = "There is no file missing.txt."
    yield event("tool.complete", tool_id="t3", name="read_file", result=failed, is_error=True)
    yield from streamed("The greeting is friendlier now.")


RICH = """\
# What changed in app.py

- [x] read `greet.py`
- [ ] change main.rs

```diff
@@ -1 +1 @@
-print("hello")
+print("Hello!")
```

| file | lines | state |
| :--- | ---: | :---: |
| greet.py | 12 | done |
| tests/test_greet.py | 1,204 | open |

```sh
find . -name '*.py' -newer setup.cfg -print0 | xargs -0 grep --line-number --with-filename 'def greet'
```
"""


def rich(_text: str) -> Iterator[Json]:
    yield from streamed(RICH)


def calls(_text: str) -> Iterator[Json]:
    todo = "- [x] look around\n- [~] fix [the] greeting\n- [ ] run the tests"
    for number, (name, context, result, more) in enumerate(
        (
            ("todo", "- [x] look around", todo, {}),
            (
                "terminal",
                "make test",
                "collected 2 items\nE   assert 1 == 2\n[exit code 1]",
                {"exit_code": 1},
            ),
            (
                "patch",
                "greet.py",
                "The old text is not in [greet.py].\nRead it.",
                {"is_error": True},
            ),
            (
                "terminal",
                "rm -rf build",
                "The user did not allow this call.",
                {"is_error": True, "refusal": "denied"},
            ),
        )
    ):
        call: Json = {"tool_id": f"c{number}", "name": name, "context": context}
        yield event("tool.start", **call)
        yield event("tool.complete", **call, result=result, duration_s=0.25, **more)
        yield {"store": {"role": "tool", **call, "result_text": result, "duration_s": 0.25, **more}}
    yield from streamed("Not everything worked.")


def running(_text: str) -> Iterator[Json]:
    yield event("tool.start", tool_id="r1", name="terminal", context="make test")
    for number in range(1, 10):
        yield event("tool.progress", tool_id="r1", text=f"test {number} of 400 passed\n")
    yield wait("interrupt")


def danger(_text: str) -> Generator[Json, str, None]:
    yield event(
        "approval.request",
        request_id="q1",
        command="rm -rf build dist",
        description="It deletes folders with everything in them.",
        choices=["once", "session", "always", "deny"],
        allow_permanent=True,
        remembers=(
            '"For this conversation" and "always" cover exactly this command in ~/project, for the'
            " same reasons."
        ),
    )
    answer = yield wait("approval.respond")
    about: Json = {"tool_id": "d1", "name": "terminal", "context": "rm -rf build dist"}
    if answer != "deny":
        yield event("tool.start", **about)
    yield event("tool.complete", **about, result="", duration_s=0.0, is_error=answer == "deny")
    yield from streamed(f"You said: {answer}.")


def change(_text: str) -> Generator[Json, str, None]:
    lines = [f"+export NAME_{number}=value" for number in range(30)]
    yield event(
        "approval.request",
        request_id="q1",
        tool_name="write_file",
        command="\n".join(["--- ~/.profile", "+++ ~/.profile", "@@ -1 +1,30 @@", *lines]),
        description=(
            "• Changes ~/.profile, which other programs run or follow\n"
            "• Writes ~/.profile, outside the workspace"
        ),
        choices=["once", "session", "always", "deny"],
        allow_permanent=True,
        remembers=(
            '"For this conversation" and "always" cover exactly this change in ~/project, for the'
            " same reasons."
        ),
    )
    yield from streamed(f"You said: {(yield wait('approval.respond'))}.")


def question(_text: str) -> Generator[Json, str, None]:
    choices = ["The tests", "The documentation"]
    yield event(
        "clarify.request", request_id="q2", question="What shall I do first?", choices=choices
    )
    answer = yield wait("clarify.respond")
    yield from streamed(f"You said: {answer}.")


def slow(_text: str) -> Iterator[Json]:
    yield from streamed("This takes a while")
    yield wait("interrupt")


def paused(_text: str) -> Iterator[Json]:
    """Wait for `process.list` in the middle."""
    yield from streamed("The first half")
    yield wait("process.list")
    yield from streamed(", and the second.")


def paragraphs(_text: str) -> Iterator[Json]:
    for text in ("First paragraph.\n\n", "Second paragraph.", "\n\n", "Third paragraph.\n"):
        yield event("message.delta", text=text)


def many(text: str) -> Iterator[Json]:
    for number in range(int(text.split()[1])):
        yield event("message.delta", text=f"word{number} ")


def retried(_text: str) -> Iterator[Json]:
    yield from streamed("This is void.")
    yield event("status.update", kind="retry", text="Overloaded. Trying again.", void=True)
    yield from streamed("This counts.")


def settled(_text: str) -> Iterator[Json]:
    """What became of a call that a death has cut off is stored, and not told."""
    call = {"name": "terminal", "context": "sleep 8", "result_text": "unknown", "is_error": True}
    yield {"store": {"role": "tool", **call}}
    yield from streamed("It was cut off.")


def compacted(_text: str) -> Iterator[Json]:
    yield event("status.update", kind="compacted", text="Shortened from 9000 to 900 tokens.")
    yield from streamed("Much shorter now.")


def fail(_text: str) -> Iterator[Json]:
    yield event(
        "message.complete", text="Error: The model refused the key.", status="error", usage={}
    )


def broken(_text: str) -> Iterator[Json]:
    yield from streamed("Half of an ans")
    error = "The model's server went away."
    yield event("message.complete", text="Half of an ans", status="error", error=error, usage={})


def no_model(_text: str) -> Iterator[Json]:
    yield event("error", message="There is no model. Fetch one: hermes model pull")
    yield event("message.complete", text="", status="error", usage={})


def crash(_text: str) -> Iterator[Json]:
    yield from streamed("Half of an ans")
    yield {"exit": 3}


SCRIPTS = {
    "markdown": markdown,
    "tool": tool,
    "rich": rich,
    "calls": calls,
    "running": running,
    "danger": danger,
    "change": change,
    "question": question,
    "slow": slow,
    "paused": paused,
    "paragraphs": paragraphs,
    "many": many,
    "retried": retried,
    "settled": settled,
    "compacted": compacted,
    "fail": fail,
    "broken": broken,
    "no-model": no_model,
    "crash": crash,
}


def echo(text: str) -> Iterator[Json]:
    yield from streamed(f"You said: {text}")


class Double:
    """The server: open sessions, one running turn each, and the file that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "conversations.json"
        self.stored: dict[str, Json] = (
            json.loads(self.file.read_text()) if self.file.exists() else {}
        )
        self.open: dict[str, str] = {}
        self.opened_count = 0
        self.output: IO[str] | None = sys.stdout
        """The connection, while there is one."""
        self.logs: dict[str, list[Json]] = {}
        """The numbered events of each open session."""
        self.missed: list[Json] = []
        """What is sent again after the answer."""
        self.turns: dict[str, Any] = {}
        self.waits: dict[str, str] = {}
        self.reply_text: dict[str, str] = {}
        self.queues: dict[str, list[str]] = {}
        self.answer = ""
        self.is_poor = self.was_poor = (folder / "poor").exists()
        """Without a model: prompts wait until it was fetched, and a fetch until there is a prompt."""
        self.shortening: int | None = None
        self.steers: list[int] = []
        """Calls that say something to the running turn, which hears nothing."""
        self.parked: list[tuple[str, str]] = []
        self.fetching: int | None = None

    # -- frames ------------------------------------------------------------------------------

    def write(self, frame: Json) -> None:
        if self.output is None:
            return
        try:
            self.output.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
            self.output.flush()
        except OSError:
            self.output = None

    def emit(self, kind: str, live: str, payload: Json) -> None:
        params = {"type": kind, "session_id": live, "payload": payload}
        if live and kind not in ("session.info", "model.progress"):
            log = self.logs.setdefault(live, [])
            params |= {"log": f"log of {live}", "seq": len(log) + 1}
            log.append(params)
        self.write({"method": "event", "params": params})

    def serve_socket(self, path: str) -> None:
        """Serve the clients that come, one after the other."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    self.output = connection.makefile("w")
                    self.serve(connection.makefile("r"))
                self.output = None

    def serve(self, lines: Iterable[str]) -> None:
        self.emit("gateway.ready", "", {})
        for line in lines:
            request = json.loads(line)
            with (self.folder / "requests.jsonl").open("a") as log:
                log.write(line)
            name = request["method"].replace(".", "_")
            method = getattr(self, name, None)
            if method is None:
                error = {"code": -32601, "message": f"no method {request['method']}"}
                self.write({"id": request["id"], "error": error})
                continue
            self.number = request["id"]
            result = method(request["params"])
            if result is None:  # it is answered later
                continue
            kind = "error" if "code" in result else "result"
            self.write({"id": request["id"], kind: result})
            missed, self.missed = self.missed, []
            for params in missed:
                self.write({"method": "event", "params": params})
            self.recover()
            for live in list(self.turns):
                self.play(live, request["method"])
            if request["method"] in ("session.create", "session.resume") and self.is_poor:
                [live] = self.open
                self.emit("session.info", live, self.info(self.open[live]))

    def keep(self, conversation: Json, role: str, text: str = "", **more: Any) -> None:
        messages = conversation["messages"]
        messages.append({"id": len(messages) + 1, "role": role, "text": text, **more})
        self.save()

    def save(self) -> None:
        draft = self.file.with_suffix(".new")
        draft.write_text(json.dumps(self.stored))
        draft.replace(self.file)

    # -- turns -------------------------------------------------------------------------------

    def play(self, live: str, method: str) -> None:
        if live in self.waits and method not in (self.waits[live], "session.interrupt"):
            return
        is_stopped = method == "session.interrupt" and live in self.waits
        self.waits.pop(live, None)
        if not is_stopped:
            for step in self.steps(live):
                if "wait" in step:
                    self.waits[live] = step["wait"]
                    return
                if "exit" in step:
                    os._exit(step["exit"])
                if "store" in step:
                    self.keep(self.stored[self.open[live]], **step["store"])
                    continue
                self.step(live, step)
                if step["event"] == "message.complete":
                    self.turns.pop(live)
                    self.next(live)
                    return
        self.turns.pop(live)
        self.end(live, "interrupted" if is_stopped else "complete")
        self.next(live)

    def steps(self, live: str) -> Iterator[Json]:
        """What comes next; a turn that has asked something goes on with the answer."""
        turn = self.turns[live]
        if self.answer:
            answer, self.answer = self.answer, ""
            yield turn.send(answer)
        for step in turn:  # noqa: UP028 -- `yield from` would close the turn when it waits
            yield step

    def step(self, live: str, step: Json) -> None:
        payload = step["payload"]
        if step["event"] == "message.delta":
            self.reply_text[live] += payload["text"]
        if step["event"] == "message.interim" or payload.get("void"):
            self.reply_text[live] = ""
        self.emit(step["event"], live, payload)

    def end(self, live: str, status: str) -> None:
        conversation = self.stored[self.open[live]]
        self.keep(conversation, "assistant", self.reply_text[live])
        usage = {
            "context_used": 4200,
            "context_max": 32000,
            "context_percent": 13.1,
            "cost_usd": 0.0123,
        }
        self.emit(
            "message.complete",
            live,
            {"text": self.reply_text[live], "status": status, "usage": usage},
        )

    def next(self, live: str) -> None:
        conversation = self.stored[self.open[live]]
        conversation["running"] = ""
        if self.queues.get(live):
            text = self.queues[live].pop(0)
            conversation["queued"] = list(self.queues[live])
            if not self.was_poor:
                self.keep(conversation, "user", text)
            self.start(live, text)
            self.play(live, "")
        else:
            self.emit("session.info", live, {"running": False})
        self.save()

    def start(self, live: str, text: str, *, is_recovered: bool = False) -> None:
        self.reply_text[live] = ""
        self.turns[live] = SCRIPTS.get(text.partition(" ")[0], echo)(text)
        self.stored[self.open[live]]["running"] = text
        payload = {"user": text, "turn_id": f"turn of {text}", "is_recovered": is_recovered}
        self.emit("message.start", live, payload)

    def recover(self) -> None:
        """Go on with the turn that a dead process left, when prompts wait for its end."""
        for live, stored in self.open.items():
            conversation = self.stored.get(stored, {})
            if conversation.get("queued") and live not in self.turns:
                self.queues[live] = list(conversation["queued"])
                self.start(live, conversation["running"], is_recovered=True)

    # -- methods -----------------------------------------------------------------------------

    def info(self, stored: str) -> Json:
        conversation = self.stored.get(stored, {})
        offer = {"name": "tiny", "title": "Tiny 1B", "bytes": 1_100_000_000}
        return {
            "offer": offer if self.is_poor else {},
            "credential_warning": "There is no model." if self.is_poor else "",
            "model": "" if self.is_poor else "scripted-1",
            "provider": "local",
            "cwd": "~/project",
            "title": conversation.get("title", ""),
            "stored_session_id": stored,
            "usage": {"context_max": 32000},
        }

    def opened(self, live: str, limit: int | None = None) -> Json:
        stored = self.open[live]
        messages = self.stored.get(stored, {}).get("messages", [])
        return {
            "session_id": live,
            "session_key": stored,
            "message_count": len(messages),
            "messages": messages[-limit:] if limit else messages,
            # an event tells that there is none
            "info": {**self.info(stored), "offer": {}, "credential_warning": ""},
            "running": live in self.turns,
            "events": {"log": f"log of {live}", "seq": len(self.logs.get(live, []))},
            "queued": [
                {"turn_id": f"turn of {text}", "text": text}
                for text in self.stored.get(stored, {}).get("queued", [])
            ],
        }

    def next_live(self) -> str:
        self.opened_count += 1
        return f"live{os.getpid()}-{self.opened_count}"

    def session_create(self, _params: Json) -> Json:
        if (self.folder / "broken").exists():
            fix = {"fix": "Correct line 3."}
            return {"code": 5032, "message": "config.toml cannot be read.", "data": fix}
        live = self.next_live()
        self.open[live] = f"conv{len(self.stored)}-{self.opened_count}"
        return {**self.opened(live), "stored_session_id": self.open[live]}

    def session_resume(self, params: Json) -> Json:
        stored = params["session_id"]
        if stored not in self.stored:
            return {"code": 4007, "message": f"There is no conversation {stored}."}
        open_sessions = [live for live, key in self.open.items() if key == stored]
        live = open_sessions[0] if open_sessions else self.next_live()
        self.open[live] = stored
        opened = {**self.opened(live, params.get("limit")), "resumed": stored}
        after = params.get("after", {})
        if live in self.logs and after.get("log") == opened["events"]["log"]:
            self.missed = self.logs[live][after["seq"] :]
            opened |= {"messages": [], "events": {**after, "replayed": True}}
        return opened

    def session_history(self, params: Json) -> Json:
        messages = self.stored[self.name(params)]["messages"]
        before = [m for m in messages if m["id"] < params.get("before", len(messages) + 1)]
        return {"count": len(messages), "messages": before[-params["limit"] :]}

    def session_most_recent(self, _params: Json) -> Json:
        return {"session_id": next(reversed(self.stored), None)}

    def session_list(self, params: Json) -> Json:
        rows = [
            {
                "id": stored,
                "title": conversation.get("title", ""),
                "preview": next((m["text"] for m in conversation["messages"]), ""),
                "started_at": NOW - 3600 * (number + 1),
                "message_count": len(conversation["messages"]),
                "source": "tui",
                "pending": conversation.get("pending", 0),
            }
            for number, (stored, conversation) in enumerate(self.stored.items())
        ]
        query = params.get("query", "").lower()
        return {
            "sessions": [row for row in rows if query in f"{row['title']} {row['preview']}".lower()]
        }

    def session_search(self, params: Json) -> Json:
        hits = [
            {
                "session_id": stored,
                "title": conversation["title"],
                "snippet": f">>>{message['text'][:60]}<<<",
                "message_id": message["id"],
                "role": message["role"],
            }
            for stored, conversation in self.stored.items()
            for message in conversation["messages"]
            if params["query"].lower() in message["text"].lower()
        ]
        return {"hits": hits}

    def name(self, params: Json) -> str:
        """The stored conversation that is meant, by its own name or as an open session."""
        session_id = str(params["session_id"])
        return self.open.get(session_id, session_id)

    def session_tree(self, params: Json) -> Json:
        first = {
            "id": "first",
            "title": "Read a file",
            "message_count": 40,
            "started_at": NOW - 90000,
        }
        short = {
            "id": params["session_id"],
            "parent_session_id": "first",
            "relation": "continuation",
        }
        branch = {
            "id": "branch",
            "parent_session_id": "first",
            "relation": "branch",
            "title": "Try it in Rust",
        }
        return {
            "sessions": [
                first,
                {**short, "title": "Read a file", "message_count": 12, "started_at": NOW - 7200},
                {**branch, "message_count": 9, "started_at": NOW - 3600},
            ]
        }

    def session_title(self, params: Json) -> Json:
        self.stored[self.name(params)]["title"] = params["title"]
        self.save()
        return {"title": params["title"], "pending": False}

    def session_delete(self, params: Json) -> Json:
        del self.stored[params["session_id"]]
        self.save()
        return {"deleted": params["session_id"]}

    def session_close(self, params: Json) -> Json:
        stored = self.open.pop(params["session_id"], None)
        self.turns.pop(params["session_id"], None)
        (self.folder / "closed").write_text(str(stored))
        return {"closed": stored is not None}

    def session_interrupt(self, params: Json) -> Json:
        live = params["session_id"]
        self.queues.pop(live, None)
        if self.open.get(live) in self.stored:
            self.stored[self.open[live]]["queued"] = []
        if self.shortening is not None:
            self.emit("status.update", params["session_id"], {"kind": "ready", "text": ""})
            self.write({"id": self.shortening, "result": {"output": "Nothing was shortened."}})
            self.shortening = None
        for number in self.steers:
            self.write({"id": number, "result": {"status": "rejected"}})
        self.steers.clear()
        return {"status": "interrupted"}

    def session_active_list(self, _params: Json) -> Json:
        return {"sessions": [{"id": live, "session_key": key} for live, key in self.open.items()]}

    def session_activate(self, params: Json) -> Json:
        return self.opened(params["session_id"])

    def session_branch(self, params: Json) -> Json:
        before = self.stored[self.open[params["session_id"]]]
        stored, live = f"branch{len(self.stored)}", self.next_live()
        self.stored[stored] = {
            "title": params.get("name", ""),
            "messages": list(before["messages"]),
        }
        self.open[live] = stored
        self.save()
        return {"session_id": live, "title": params.get("name", ""), "parent": ""}

    def prompt_submit(self, params: Json) -> Json | None:
        live, text = params["session_id"], params["text"]
        if "refuse" in text:
            return {
                "code": 5032,
                "message": "It cannot be taken.",
                "data": {"fix": "Say it again."},
            }
        if text == "die unheard" and not (self.folder / "crashed").exists():
            (self.folder / "crashed").write_text("")
            os._exit(3)
        conversation = self.stored.setdefault(self.open[live], {"title": "", "messages": []})
        keys = conversation.setdefault("keys", [])
        if params["idempotency_key"] in keys:
            return {"status": "answered", "duplicate": True}
        keys.append(params["idempotency_key"])
        if live in self.turns and params.get("busy") == "steer":
            self.steers.append(self.number)
            return None
        if live in self.turns:
            self.queues.setdefault(live, []).append(text)
            conversation["queued"] = list(self.queues[live])
            self.save()
            return {"status": "queued", "turn_id": f"turn of {text}"}
        self.keep(conversation, "user", text)
        if self.is_poor:
            self.emit("status.update", live, {"kind": "waiting", "text": "waits for a model"})
            self.parked.append((live, text))
            self.arrive()
            return {"status": "queued" if len(self.parked) > 1 else "streaming"}
        self.start(live, text)
        self.save()
        return {"status": "streaming"}

    def model_pull(self, params: Json) -> None:
        self.fetching = self.number
        progress = {"text": "from the hub", "done": 440_000_000, "total": 1_100_000_000}
        self.emit("model.progress", params["session_id"], progress)
        self.arrive()

    def arrive(self) -> None:
        """The model is here, when it is fetched and something waits for it."""
        if self.fetching is None or not self.parked or self.parked[-1][1] == "patience":
            return
        self.is_poor = False
        self.write({"id": self.fetching, "result": {"name": "tiny"}})
        self.fetching = None
        parked, self.parked = self.parked, []
        live = parked[0][0]
        self.emit("session.info", live, self.info(self.open[live]))
        self.queues[live] = [text for _, text in parked]
        self.next(live)

    def model_pull_stop(self, _params: Json) -> Json:
        self.write({"id": self.fetching, "error": {"code": 5032, "message": "Stopped."}})
        self.fetching = None
        return {"stopped": True}

    def process_list(self, _params: Json) -> Json:
        return {"processes": []}

    def prompt_unqueue(self, params: Json) -> Json:
        text = params["turn_id"].removeprefix("turn of ")
        live = params["session_id"]
        self.queues[live].remove(text)
        self.stored[self.open[live]]["queued"] = list(self.queues[live])
        self.save()
        return {"text": text}

    def approval_respond(self, params: Json) -> Json:
        if self.waits.get(params["session_id"]) == "approval.respond":
            self.answer = params["choice"]
        return {"resolved": 1}

    def clarify_respond(self, params: Json) -> Json:
        self.answer = params["answer"]
        return {"status": "ok"}

    def slash_exec(self, params: Json) -> Json | None:
        if params["command"] == "/compress patience":
            status = {"kind": "compacting", "text": "Shortening 32 messages."}
            self.emit("status.update", params["session_id"], status)
            self.shortening = self.number
            return None
        if params["command"].startswith("/nonsense"):
            return {"code": 4011, "message": "Unknown command /nonsense."}
        if params["command"] == "/help":
            return {"output": "/help   Show the commands.\n/new    A new one.\ndone: /help"}
        if params["command"].startswith("/skill "):
            return {"type": "skill", "message": params["command"][7:]}
        return {"output": f"done: {params['command']}"}

    def session_usage(self, params: Json) -> Json:
        messages = self.stored[self.open[params["session_id"]]]["messages"]
        return {"cost_usd": 0.01 * len(messages), "context_max": 32000}

    def complete_slash(self, params: Json) -> Json:
        commands = {
            "/help": "Show the commands.",
            "/title": "Set the title.",
            "/undo": "Take back.",
        }
        items = [
            {"text": name[1:], "display": name, "meta": help}
            for name, help in commands.items()
            if name.startswith(params["text"])
        ]
        return {"items": items, "replace_from": 1}

    def complete_path(self, params: Json) -> Json:
        files = ["@src/", "@src/greet.py", "@README.md"]
        items = [
            {"text": n, "display": n[1:], "meta": ""} for n in files if n.startswith(params["word"])
        ]
        return {"items": items}

    def file_describe(self, params: Json) -> Json:
        sizes = {"src/greet.py": "1.2 kB", "src/": "folder, 1 item", "README.md": "3.4 kB"}
        files = [
            {"name": name, "note": sizes[name], "is_included": True}
            for name in params["names"]
            if name in sizes
        ]
        return {"files": files}

    def paste_collapse(self, params: Json) -> Json:
        lines = params["text"].count("\n") + 1
        return {"placeholder": f"[Pasted: {lines} lines]", "path": "paste.txt", "lines": lines}

    def input_detect_drop(self, params: Json) -> Json:
        is_image = params["text"].endswith(".png")
        return {"matched": is_image, "is_image": is_image, "path": params["text"]}

    def model_options(self, _params: Json) -> Json:
        if self.is_poor:
            return {"models": [], "error": "There is no model."}
        names = ["local/scripted-1", "local/scripted-2", "openai/gpt-6.1-terra"]
        reasons = ["a server on this machine", "a server on this machine", "OPENAI_API_KEY is set"]
        return {
            "models": [
                {"name": name, "provider": name.split("/")[0], "reason": reason, "used": not number}
                for number, (name, reason) in enumerate(zip(names, reasons, strict=True))
            ]
        }

    def config_set(self, params: Json) -> Json:
        return {"key": params["key"], "value": params["value"]}

    def terminal_resize(self, params: Json) -> Json:
        return {"cols": params["cols"]}


if __name__ == "__main__":
    double = Double(Path(sys.argv[1]))
    if sys.argv[2:]:
        double.serve_socket(sys.argv[2])
    else:
        double.serve(sys.stdin)

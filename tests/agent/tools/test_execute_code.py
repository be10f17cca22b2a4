"""Python in a process of its own, and the tools it calls."""

import threading

import pytest

from hermes_agent.tools.base import Args, Result
from hermes_agent.tools.execute_code import TOOL, Calls
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, ToolDeniedError
from tests.agent.tools.conftest import Desk, MakeDesk
from tests.agent.tools.test_terminal import NEVER, has_ended, wait_for


def test_code_prints_and_sees_the_workspace(desk: Desk) -> None:
    (desk.workspace / "mine.py").write_text("x = 5\n")
    code = "import os, mine\nprint(mine.x, os.getcwd())\nprint(__name__)"
    assert desk.text(TOOL, code=code) == f"5 {desk.workspace}\n__main__"
    assert desk.text(TOOL, code="pass") == "(no output)"


def test_an_error_shows_the_frames_of_the_code_alone(desk: Desk) -> None:
    result = desk.run(TOOL, code="def f():\n    return 1 / 0\nprint('a')\nf()")
    assert result.is_error
    assert result.text.startswith("a\nTraceback")
    assert result.text.endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert "code_runner" not in result.text
    assert 'File "<string>"' not in result.text
    assert "SyntaxError" in desk.text(TOOL, code="print(")
    assert desk.text(TOOL, code="raise SystemExit(3)") == "(no output)\n[exit code 3]"


def test_what_its_own_processes_print_is_shown_too(desk: Desk) -> None:
    code = "import subprocess\nprint('a', flush=True)\nsubprocess.run(['echo', 'b'])\nprint('c')"
    assert desk.text(TOOL, code=code) == "a\nb\nc"


def test_code_calls_tools_through_the_gate(desk: Desk) -> None:
    def run(name: str, args: Args) -> Result:
        return Result(f"{name}:{args['path'].upper()}")

    desk.run_nested = run
    code = (
        "from hermes import tool, read_file\nimport hermes\n"
        "print(tool('read_file', path='a'))\n"
        "print(read_file(path='b'), hermes.write_file(path='c', content='d'))\n"
    )
    assert desk.text(TOOL, code=code) == "read_file:A\nread_file:B write_file:C"
    assert desk.nested == [
        ("read_file", {"path": "a"}),
        ("read_file", {"path": "b"}),
        ("write_file", {"path": "c", "content": "d"}),
    ]


def test_a_tool_that_fails_or_is_denied_raises_in_the_code(desk: Desk) -> None:
    def run(name: str, args: Args) -> Result:
        if name == "denied":
            raise ToolDeniedError("The user did not allow this call.")
        return Result("it failed", is_error=True)

    desk.run_nested = run
    code = (
        "from hermes import tool, ToolError\n"
        "for name in ('denied', 'fails'):\n"
        "    try:\n        tool(name)\n"
        "    except ToolError as error:\n        print(name, error)\n"
    )
    assert desk.text(TOOL, code=code) == (
        "denied The user did not allow this call.\nfails it failed"
    )


def test_tools_may_be_called_from_several_threads(desk: Desk) -> None:
    desk.run_nested = lambda _name, args: Result(str(args["n"]))
    code = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom hermes import tool\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(list(pool.map(lambda n: tool('x', n=n), range(20))))\n"
    )
    assert desk.text(TOOL, code=code) == str([str(n) for n in range(20)])


def test_large_answers_and_large_output_do_not_block(make_desk: MakeDesk) -> None:
    desk = make_desk(output_limit=3000)
    desk.run_nested = lambda _name, _args: Result("y" * 1_000_000)
    code = (
        "from hermes import tool\nimport sys\n"
        "print('x' * 500_000)\nprint(len(tool('big')))\nsys.stderr.write('end')\n"
    )
    text = desk.text(TOOL, code=code)
    assert text.endswith("1000000\nend")
    assert len(text) <= 3000


def test_too_many_calls_are_refused(desk: Desk) -> None:
    code = "from hermes import tool\nfor n in range(201):\n    tool('x', n=n)\n"
    result = desk.run(TOOL, code=code)
    assert "More than 200 tool calls" in result.text
    assert len(desk.nested) == 200


def test_code_that_takes_too_long_is_ended(desk: Desk) -> None:
    result = desk.run(TOOL, code="print('a', flush=True)\nwhile True: pass", timeout=5)
    assert result.is_error
    assert result.text == "a\n[ended after 5 s]"


class Listener:
    """A child that hears what it is sent."""

    def __init__(self) -> None:
        self.deadline: float | None = 10.0
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)


def test_the_time_of_a_tool_is_not_the_time_of_the_code(desk: Desk) -> None:
    def slow(_name: str, _args: Args) -> Result:
        NEVER.wait(0.05)
        return Result("ok")

    desk.run_nested = slow
    listener = Listener()
    calls = Calls(listener, desk.call())
    calls.take(b'{"tool": "x", "argu')
    assert listener.deadline == 10.0
    calls.take(b'ments": {}}\n')
    assert (listener.deadline or 0) >= 10.05
    assert listener.sent == [b'{"text":"ok","is_error":false}\n']


def test_a_stop_ends_the_code_and_what_it_started(desk: Desk) -> None:
    stop = Stop()
    code = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "open('pid', 'w').write(str(child.pid))\nopen('up', 'w').close()\nchild.wait()\n"
    )
    stopper = threading.Thread(target=lambda: (wait_for(desk.workspace / "up"), stop.set()))
    stopper.start()
    with pytest.raises(Interrupted):
        desk.run(TOOL, stop, code=code)
    stopper.join(30)
    assert has_ended(int((desk.workspace / "pid").read_text()))


def test_a_stop_inside_a_called_tool_ends_the_code(desk: Desk) -> None:
    def interrupted(_name: str, _args: Args) -> Result:
        raise Interrupted

    desk.run_nested = interrupted
    with pytest.raises(Interrupted):
        desk.run(TOOL, code="from hermes import tool\ntool('x')")


def test_code_that_speaks_nonsense_on_the_line_is_told(desk: Desk) -> None:
    code = (
        "import os\n"
        "out = next(f for f in range(3, 20) if os.path.exists(f'/proc/self/fd/{f}')"
        " and os.readlink(f'/proc/self/fd/{f}').startswith('pipe:')"
        " and f != 3)\n"
        "os.write(out, b'nonsense\\n')\nprint('still here')\n"
    )
    assert desk.text(TOOL, code=code) == "still here"


def test_dangerous_code_needs_a_yes_and_no_code_is_refused(desk: Desk) -> None:
    assert desk.kinds(TOOL, code="print(1)") == []
    assert desk.kinds(TOOL, code="import shutil; shutil.rmtree('src')") == ["destructive"]
    assert "no code" in desk.error(TOOL, code="\n")

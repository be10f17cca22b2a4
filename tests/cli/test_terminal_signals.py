"""Signals that reach line mode at the worst moment: when CPython has looked for them already."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.chat_process import TerminalChat

PROGRAM = """
import ctypes, functools, readline, signal, sys
from pathlib import Path
from hermes_cli.chat.terminal import ExitRequested, Terminal

def names():
    signal.raise_signal(signal.SIGINT)  # while a command is completed
    return ["status"]

def send(number):  # without letting Python look at its signals
    return functools.partial(ctypes.PyDLL(None)["raise"], number)

terminal = Terminal(sys.stdout)
moment = sys.argv[1]
is_settled = False
def settle():
    global is_settled
    is_settled = True
    terminal.wake()

with terminal:
    terminal.edit(Path("history"), names)
    if moment in ("SIGINT", "SIGTERM"):
        readline.set_pre_input_hook(send(signal.Signals[moment]))
    elif moment == "settled":
        readline.set_pre_input_hook(settle)
    try:
        if moment == "settled":
            print("<answer", terminal.ask("allow? ", lambda: is_settled), ">")
        else:
            print("<line", terminal.read(), ">")
    except KeyboardInterrupt:
        print("<interrupted>")
    except ExitRequested as request:
        print("<exit", request.status, ">")
"""

Start = Callable[[str], TerminalChat]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def on_a_terminal(moment: str) -> TerminalChat:
        command = [sys.executable, "-c", PROGRAM, moment]
        return TerminalChat(command, tmp_path, {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8"})

    return on_a_terminal


@pytest.mark.parametrize(
    ("moment", "outcome"),
    [("SIGINT", "<interrupted>"), ("SIGTERM", "<exit 143 >"), ("settled", "<answer None >")],
)
def test_a_signal_between_the_prompt_and_the_first_key_is_heard(
    start: Start, moment: str, outcome: str
) -> None:
    with start(moment) as chat:
        chat.wait_for(outcome)


def test_ctrl_c_while_a_command_is_completed_is_heard(start: Start) -> None:
    with start("completion") as chat:
        chat.wait_for("> ")
        chat.type("/sta\t")
        chat.wait_for("<interrupted>")

"""`hermes chat` on a terminal: typing, approving, stopping, and every way to leave."""

import signal
import stat
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import Quiet, Step, call, say, silence, words
from hermes_state.ledger import questions
from tests.cli.chat_process import CTRL_C, CTRL_D, ENTER, World

pytestmark = pytest.mark.e2e


def test_a_message_is_answered_and_the_conversation_ends_with_exit(world: World) -> None:
    world.server.add("Some **bold** words.")
    with world.chat() as chat:
        greeting = chat.wait_for_prompt()
        assert "Model: local/scripted (OPENAI_BASE_URL is set" in greeting
        assert "Commands run without a sandbox (tools.sandbox = host)" in greeting
        chat.type("hello" + ENTER)
        chat.wait_for("Some **bold** words.")
        chat.wait_for("tokens in")
        chat.say("/exit")
        assert chat.wait() == 0
    (session,) = world.sessions()
    assert session["end_reason"] == "cli_close"
    assert world.model_messages() == ["hello"]


def test_a_chat_in_which_nothing_was_said_leaves_nothing_behind(world: World) -> None:
    with world.chat() as chat:
        chat.wait_for_prompt()
        chat.type(CTRL_D)
        assert chat.wait() == 0
    assert world.sessions() == []


def test_several_lines_can_be_typed_and_pasted(world: World) -> None:
    world.server.add("Yes.", "Yes.")
    with world.chat() as chat:
        chat.say("one\\")
        chat.wait_for("one")
        chat.type("two" + ENTER)
        chat.wait_for("Yes.")
        assert world.model_messages() == ["one\ntwo"]
        chat.wait_for_prompt()
        chat.type("\x1b[200~four\nfive\n\nsix\x1b[201~" + ENTER)
        chat.wait_for("Yes.")
        assert world.model_messages()[-1] == "four\nfive\n\nsix"


def test_what_was_typed_is_in_a_private_history_without_secrets(world: World) -> None:
    world.server.add("Yes.", "Again.")
    with world.chat() as chat:
        chat.say("remember sk-test-of-the-chat")
        chat.wait_for("Yes.")
        chat.say("/exit")
        chat.wait()
    history = world.home.history
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "remember [secret OPENAI_API_KEY]" in history.read_text()
    with world.chat() as chat:
        chat.wait_for_prompt()
        chat.type("\x1b[A\x1b[A" + ENTER)
        chat.wait_for("Again.")
        assert world.model_messages()[-1].startswith("remember")


def dangerous(world: World) -> tuple[Step, Path]:
    protected = world.workspace.parent / "protected"
    protected.mkdir()
    return call("terminal", command=f"rm -rf {protected}"), protected


def test_an_approval_is_asked_in_line_and_once_means_once(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step, "Gone.", step, "Refused.")
    with world.chat() as chat:
        chat.say("delete it")
        question = chat.wait_for("allow?")
        assert "Allow this call of terminal?" in question and "Always allow" not in question
        assert f"rm-rf{protected}" in "".join(question.split())
        chat.type("y" + ENTER)
        chat.wait_for("Gone.")
        assert not protected.exists()
        protected.mkdir()
        chat.say("once more")
        chat.wait_for("allow?")
        chat.type(ENTER + "use the trash instead" + ENTER)
        chat.wait_for("Refused.")
        assert protected.exists()
        assert "use the trash instead" in world.model_messages()[-1]


def test_all_of_a_change_is_shown_with_what_a_lasting_yes_is_for(world: World) -> None:
    path = world.workspace.parent / "outside.txt"
    lines = [f"line {number} of {'x' * 30}" for number in range(500)]
    world.server.add(call("write_file", path=str(path), content="\n".join(lines)), "Left it.")
    with world.chat() as chat:
        chat.say("write it")
        text = " ".join(chat.wait_for("allow?").split())
        for line in lines:
            assert f"+{line}" in text
        assert '"For this conversation" and "always" cover exactly this change in' in text
        chat.type("n" + ENTER)
        chat.wait_for("Left it.")
    assert not path.exists()


def test_a_yes_for_the_conversation_lasts_as_long_as_it(world: World) -> None:
    (world.workspace / ".env").write_text("COLOR=red\n")
    step = call("terminal", command="cat .env")
    world.server.add(step, "Read.", step, "Read again.")
    with world.chat() as chat:
        chat.say("read it")
        assert "Always allow" in chat.wait_for("allow?")
        chat.type("s" + ENTER)
        chat.wait_for("Read.")
        chat.say("once more")
        assert "allow?" not in chat.wait_for("Read again.")
        assert "COLOR=red" in world.model_messages()[-1]


def test_a_question_of_the_model_is_answered_by_number_or_in_words(world: World) -> None:
    asks = call("clarify", question="Which colour?", choices=["red", "blue"])
    world.server.add(asks, "Thanks.", asks, "Thanks a lot.")
    with world.chat() as chat:
        chat.say("paint it")
        assert "2. blue" in chat.wait_for("answer:")
        chat.type("2" + ENTER)
        chat.wait_for("Thanks.")
        assert "blue" in world.model_messages()[-1]
        chat.say("another")
        chat.wait_for("answer:")
        chat.type("something like teal" + ENTER)
        chat.wait_for("Thanks a lot.")
        assert "something like teal" in world.model_messages()[-1]


def test_ctrl_c_stops_the_turn_and_a_second_one_leaves(world: World) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet, after="Half of an answer"), "Go on.", silence(Quiet()))
    with world.chat() as chat:
        chat.say("talk")
        chat.wait_for("Half of an answer")
        chat.type(CTRL_C)
        chat.wait_for("Stopped.")
        chat.say("and now?")
        chat.wait_for("Go on.")
        chat.say("and then?")
        world.server.wait_for_requests(3)
        chat.type(CTRL_C)
        chat.wait_for("Stopped.")
        chat.wait_for_prompt()
        chat.type(CTRL_C)
        assert chat.wait() == 130
    assert [t["state"] for t in world.turns()] == ["interrupted", "answered", "interrupted"]
    assert world.sessions()[0]["end_reason"] == "cli_close"


def test_ctrl_c_at_the_prompt_drops_the_line_and_a_second_one_leaves(world: World) -> None:
    with world.chat() as chat:
        chat.wait_for_prompt()
        chat.type("half a mess")
        chat.wait_for("half a mess")
        chat.type(CTRL_C)
        chat.wait_for("Ctrl-C once more")
        chat.wait_for_prompt()
        chat.type(CTRL_C)
        assert chat.wait() == 130
    assert world.sessions() == []


def test_ctrl_c_at_a_question_stops_the_turn(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step, "Something else.")
    with world.chat() as chat:
        chat.say("delete it")
        chat.wait_for("allow?")
        chat.type(CTRL_C)
        chat.wait_for("Stopped.")
        chat.say("hello again")
        chat.wait_for("Something else.")
    assert protected.exists()
    with world.store() as store:
        assert store.read(questions.pending) == []


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["TERM", "HUP"]
)
def test_a_signal_finalizes_the_conversation_at_the_prompt_and_in_a_turn(
    world: World, number: signal.Signals, status: int
) -> None:
    world.server.add("Yes.", silence(Quiet()))
    with world.chat() as chat:
        chat.say("hello")
        chat.wait_for("tokens in")
        chat.wait_for_prompt()
        chat.signal(number)
        assert chat.wait() == status
    assert world.sessions()[0]["end_reason"] == "cli_close"
    with world.chat("--continue") as chat:
        chat.say("hello again")
        world.server.wait_for_requests(2)
        chat.signal(number)
        assert chat.wait() == status
    assert [turn["state"] for turn in world.turns()] == ["answered", "interrupted"]
    assert world.sessions()[0]["end_reason"] == "cli_close"


@pytest.mark.parametrize("moment", ["prompt", "turn", "question"])
def test_a_closed_terminal_finalizes_the_conversation(world: World, moment: str) -> None:
    step, protected = dangerous(world)
    world.server.add("Yes.", step if moment == "question" else silence(Quiet()))
    with world.chat() as chat:
        chat.say("hello")
        chat.wait_for("tokens in")
        chat.wait_for_prompt()
        if moment != "prompt":
            chat.type("go on" + ENTER)
            world.server.wait_for_requests(2)
        if moment == "question":
            chat.wait_for("allow?")
        chat.hang_up()
        assert chat.wait() == 129
    assert world.sessions()[0]["end_reason"] == "cli_close"
    states = [turn["state"] for turn in world.turns()]
    assert states == (["answered"] if moment == "prompt" else ["answered", "interrupted"])
    assert protected.exists()


def test_a_turn_that_was_killed_goes_on_when_the_conversation_is_continued(world: World) -> None:
    counter = world.workspace / "count"
    world.server.add(
        call("terminal", command="echo once >> count"),
        silence(Quiet()),
        "It is written.",
        "Anything else?",
    )
    with world.chat() as chat:
        chat.say("write once")
        world.server.wait_for_requests(2)
        chat.kill()
    assert "running" in world.hermes("sessions", "show", world.sessions()[0]["id"])
    with world.chat() as chat:  # another conversation says how to get back
        hint = chat.wait_for_prompt()
        assert f"--resume {world.sessions()[0]['id']}" in " ".join(hint.split())
    with world.chat("--continue") as chat:
        recalled = chat.wait_for("It is written.")
        assert "you: write once" in recalled and "no answer yet" in recalled
        chat.say("thanks")
        chat.wait_for("Anything else?")
        chat.say("/exit")
        assert chat.wait() == 0
    assert counter.read_text() == "once\n"
    assert [turn["state"] for turn in world.turns()] == ["answered", "answered"]


def test_keys_typed_before_a_question_do_not_answer_it(world: World) -> None:
    quiet = Quiet()
    step, protected = dangerous(world)
    world.server.add(Step(calls=step.calls, quiet=quiet), "Refused.")
    with world.chat() as chat:
        chat.say("delete it")
        assert quiet.started.wait(30)
        chat.type("y" + ENTER)
        quiet.release()
        chat.wait_for("allow?")
        chat.type("n" + ENTER)
        chat.wait_for("Refused.")
        assert protected.exists()


def test_keys_typed_during_a_turn_are_the_next_message(world: World) -> None:
    quiet = Quiet()
    world.server.add(silence(quiet, then="Yes."), "Heard.")
    with world.chat() as chat:
        chat.say("go")
        assert quiet.started.wait(30)
        chat.type("and then" + ENTER)
        quiet.release()
        chat.wait_for("Heard.")
        assert world.model_messages()[-1] == "and then"


def test_a_question_survives_the_process_and_is_asked_again(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step, "Gone.")
    with world.chat() as chat:
        chat.say("delete it")
        chat.wait_for("allow?")
        chat.kill()
    with world.chat("--continue") as chat:
        chat.wait_for("allow?")
        chat.type("y" + ENTER)
        chat.wait_for("Gone.")
        chat.wait_for("tokens in")
    assert not protected.exists()
    assert [turn["state"] for turn in world.turns()] == ["answered"]


def test_a_question_that_is_answered_elsewhere_closes(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step, "Gone.")
    with world.chat() as chat:
        chat.say("delete it")
        chat.wait_for("allow?")
        with world.store() as store:
            (question,) = store.read(questions.pending)
            store.write(questions.answer, question["id"], "once", by="elsewhere")
        chat.wait_for("answered elsewhere")
        chat.wait_for("Gone.")
        chat.wait_for_prompt()
    assert not protected.exists()


def test_end_of_input_at_a_question_leaves_and_allows_nothing(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step)
    with world.chat() as chat:
        chat.say("delete it")
        chat.wait_for("allow?")
        chat.type(CTRL_D)
        assert chat.wait() == 130
    assert protected.exists()
    assert [turn["state"] for turn in world.turns()] == ["interrupted"]


def test_a_folder_that_is_gone_is_told_and_replaced(world: World, tmp_path: Path) -> None:
    world.server.add("Yes.", "Yes.")
    removed = tmp_path / "gone"
    removed.mkdir()
    assert world.once("-q", "hi", "-w", str(removed)).returncode == 0
    removed.rmdir()
    with world.chat("--continue") as chat:
        assert "no longer exists. Using" in " ".join(chat.wait_for_prompt().split())
    assert world.sessions()[0]["cwd"] == str(world.workspace)


def test_another_model_answers_after_the_command_for_it(world: World) -> None:
    world.server.add("Yes.", "No.")
    with world.chat() as chat:
        chat.say("first")
        chat.wait_for("tokens in")
        chat.say("/model other")
        chat.wait_for("Switched to other.")
        chat.say("second")
        chat.wait_for("No.")
        assert world.server.model_requests[-1].json["model"] == "other"
        chat.say("/model anthropic/claude-sonnet-4-5")
        chat.wait_for("ANTHROPIC_API_KEY")
        chat.say("/status")
        chat.wait_for("Model: other")


def test_a_conversation_is_resumed_by_its_title_and_recalled(world: World) -> None:
    world.server.add("The first answer.", "More.")
    with world.chat() as chat:
        chat.say("the first question")
        chat.wait_for("The first answer.")
        chat.say("/title Holiday plans")
        chat.wait_for("is called 'Holiday plans'")
        chat.say("/exit")
        assert chat.wait() == 0
    with world.chat("--resume", "Holiday plans") as chat:
        recalled = chat.wait_for_prompt()
        assert "Holiday plans: 2 messages" in recalled
        assert "you: the first question" in recalled and "hermes: The first answer." in recalled
        chat.type("and?" + ENTER)
        chat.wait_for("More.")
        assert world.model_messages() == ["the first question", "The first answer.", "and?"]


def test_commands_work_and_mistakes_are_told(world: World) -> None:
    world.server.add("One.", "Two.", "Two again.", "Fresh.")
    with world.chat() as chat:
        chat.say("first")
        chat.wait_for("One.")
        chat.say("/hepl")
        chat.wait_for("Did you mean /help?")
        chat.say("second")
        chat.wait_for("Two.")
        chat.say("/retry")
        chat.wait_for("Two again.")
        assert world.model_messages() == ["first", "One.", "second"]
        chat.say("/undo 2")
        chat.wait_for("Undone")
        chat.say("/new")
        chat.wait_for("A new conversation.")
        chat.say("hello")
        chat.wait_for("Fresh.")
        assert world.model_messages() == ["hello"]
        chat.say("/sta\t")
        chat.wait_for("Nothing is running.")
        chat.say("/quit")
        assert chat.wait() == 0
    assert sorted(s["end_reason"] for s in world.sessions()) == ["cli_close", "new_session"]


def test_a_dumb_terminal_gets_plain_lines(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add("Some **bold** words.", step, "Gone.", silence(Quiet()))
    with world.chat(TERM="dumb") as chat:
        chat.wait_for("> ")
        chat.type("one\\\n")
        chat.wait_for("  ")
        chat.type("two\n")
        chat.wait_for("Some **bold** words.")
        assert world.model_messages() == ["one\ntwo"]
        chat.wait_for("> ")
        chat.type("delete it\n")
        chat.wait_for("allow?")
        chat.type("y\n")
        chat.wait_for("Gone.")
        assert not protected.exists()
        chat.wait_for("> ")
        chat.type("more\n")
        world.server.wait_for_requests(4)
        chat.type(CTRL_C)
        chat.wait_for("Stopped.")
        chat.wait_for("> ")
        chat.signal(signal.SIGTERM)
        assert chat.wait() == 143
    assert "\x1b[" not in chat.raw


def test_without_a_model_the_person_is_asked_once_before_anything_is_fetched(world: World) -> None:
    with world.chat(HERMES_MODEL="embedded") as chat:
        offer = chat.wait_for("[Y/n]")
        assert "GB" in offer and "ANTHROPIC_API_KEY" in offer
        chat.type("n\n")
        chat.wait_for("hermes model pull")
        assert chat.wait() == 3


def test_one_question_on_a_terminal_is_streamed_and_may_ask(world: World) -> None:
    step, protected = dangerous(world)
    world.server.add(step, say("", chunks=words("It is **gone**.\n\n- really")))
    with world.chat("-q", "delete it") as chat:
        chat.wait_for("allow?")
        chat.type("y\n")
        chat.wait_for("It is **gone**.")
        chat.wait_for("- really")
        assert chat.wait() == 0
    assert not protected.exists()


def test_the_program_alone_on_a_dumb_terminal_starts_a_chat(world: World) -> None:
    world.server.add("Yes.")
    with world.terminal(TERM="dumb") as chat:
        chat.say("hello")
        chat.wait_for("Yes.")

"""/compress in a chat: it can be seen and stopped, and holds up nothing but its own conversation."""

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_cli import plugins
from hermes_state.ledger import lineage, titles
from tests.gateway.harness import Inside, World
from tests.support.faults import eventually

_TIMEOUT_S = 10


def _spoken_in(world: World) -> None:
    """A conversation that is long enough to be shortened."""
    for number in range(8):
        world.platform.say("a", f"word number {number} is {'blue ' * 600}")
        world.wait_for_replies("a", number + 1)


def _small_window(world: World) -> None:
    text = world.home.config.read_text()
    small = "retries = 1\ncontext_window = 16000\nmax_output_tokens = 500"
    world.home.config.write_text(text.replace("retries = 1", small))


def _being_shortened(world: World) -> Quiet:
    quiet = Quiet()
    world.play(silence(quiet, then="A summary: they said blue a lot."))
    world.platform.say("a", "/compress")
    assert quiet.started.wait(_TIMEOUT_S)
    return quiet


def test_a_shortening_is_told_and_can_be_stopped(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        _spoken_in(world)
        before = inside.runner.session_store.list_sessions()[0].session_id
        _being_shortened(world)
        world.platform.say("a", "/status")
        world.wait_for_text("a", "The conversation is being compacted.")
        world.platform.say("a", "/compress")
        world.wait_for_text("a", "/compress has to wait")
        world.platform.say("a", "/stop")
        world.wait_for_text("a", "⏹ Stopping.")
        world.wait_for_text("a", "⏹ Stopped; nothing was compacted.")
        world.platform.say("a", "/status")
        world.wait_for_text("a", "Nothing is running.")
        assert inside.runner.session_store.list_sessions()[0].session_id == before


def test_what_is_said_meanwhile_is_taken_in_at_once_and_answered_afterwards(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        _spoken_in(world)
        began: list[str] = []
        plugins.register_hook("on_session_start", lambda session_id: began.append(session_id))
        quiet = _being_shortened(world)
        world.platform.say("a", "are you there?", message_id="next")
        world.platform.wait_until(lambda: not world.platform.unacknowledged(), timeout=3)
        assert len(world.replies("a")) == 8
        assert inside.open_turns()
        quiet.release()
        world.wait_for_text("a", "The conversation continues in")
        world.wait_for_text("a", "You said: are you there?")
        assert "A summary" in str(world.model.model_requests[-1].json["messages"])
        assert began == [], "it is the same conversation"
        (entry,) = inside.runner.session_store.list_sessions()
        assert entry.session_id == inside.store.read(lineage.tip, entry.session_id)


def test_new_stops_a_shortening_with_a_word(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        _spoken_in(world)
        before = inside.runner.session_store.list_sessions()[0].session_id
        _being_shortened(world)
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset.")
        world.wait_for_text("a", "⏹ Stopped; nothing was compacted.")
        world.play(say("a fresh start"))
        world.platform.say("a", "hello")
        world.wait_for_text("a", "a fresh start")
        assert "blue" not in str(world.model.model_requests[-1].json["messages"])
        ended = inside.store.get_session(before)
        assert ended is not None
        assert ended["end_reason"] == "session_reset"
        eventually(lambda: not inside.open_turns())
        assert not any("went wrong" in reply for reply in world.replies("a"))


def test_commands_of_a_chat_find_the_conversation_where_another_one_shortened_it(
    world: World,
) -> None:
    _small_window(world)
    with Inside(world) as inside:
        _spoken_in(world)
        session_id = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("b", f"/resume {session_id}")
        world.wait_for_text("b", "You are in")
        world.platform.say("b", "here I am")
        world.wait_for_text("b", "You said: here I am")
        world.play(say("A summary: they said blue a lot."))
        world.platform.say("a", "/compress")
        world.wait_for_text("a", "The conversation continues in")
        tip = inside.store.read(lineage.tip, session_id)
        world.platform.say("b", "/title Blue")
        world.wait_for_text("b", "called 'Blue'")
        assert inside.store.read(titles.title_of, tip) == "Blue"
        world.platform.say("b", "/status")
        world.wait_for_text("b", f"Conversation: {tip} (Blue)")
        world.platform.say("b", "/expand 3")
        world.wait_for_text("b", "The model sees these again")
        world.platform.say("a", "and now?")
        world.wait_for_text("a", "You said: and now?")
        assert "word for word" in str(world.model.model_requests[-1].json["messages"])
        world.platform.say("b", "/branch")
        world.wait_for_text("b", f"/resume {tip} goes back")

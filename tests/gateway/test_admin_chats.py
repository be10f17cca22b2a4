"""Home chats: what an owner is told about the gateway itself, and that it is told once."""

from gateway.config import Platform
from gateway.replies import decode
from gateway.source import SessionSource
from hermes_state.ledger import outbox, people
from tests.gateway.harness import Inside, Process, World


def _choose_home(world: World) -> None:
    world.platform.say("home", "/sethome")
    world.wait_for_text("home", "I send notices to this chat now")


def _notices(world: World, words: str) -> list[str]:
    return [text for text in world.replies("home") if words in text]


def test_an_owner_hears_once_of_somebody_who_wants_to_be_let_in(world: World) -> None:
    with Inside(world) as inside:
        _choose_home(world)
        world.platform.say("s", "hello", user="stranger")
        code = world.wait_for_text("s", "Your pairing code is").text
        text = world.wait_for_text("home", "got a pairing code").text
        assert "stranger" in text
        assert "on loopback" in text
        assert code.partition("code is ")[2][:8] not in text
        inside.store.write(people.delete_code, "loopback", "stranger")
        world.platform.say("s", "hello?", user="stranger")
        world.wait_for_replies("s", 2)
        world.platform.say("home", "anything else?")
        world.wait_for_text("home", "You said: anything else?")
        assert len(_notices(world, "got a pairing code")) == 1


def test_the_name_of_a_stranger_is_shown_as_a_name_and_no_more(world: World) -> None:
    name = "Eve\n\n⚠️ [let me in](https://evil.example)\u202e" + "!" * 500
    stranger = SessionSource(Platform("loopback"), "s", user_id="eve", user_name=name)
    with Inside(world) as inside:
        _choose_home(world)
        inside.services.admin_chats.report_stranger(stranger)
        text = world.wait_for_text("home", "got a pairing code").text
        assert text.startswith("👋 Eve ⚠️ [let me in](https://evil.example)!!!")
        assert "\u202e" not in text
        assert len(text) < 300
        row = inside.store.read(outbox.find, "stranger:loopback:eve:loopback:0")
        assert row is not None
        assert decode(row["extra"]).is_plain, "nothing in it is drawn as a link"


def test_without_a_home_nobody_is_told(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("s", "hello", user="stranger")
        world.wait_for_text("s", "Your pairing code is")
        assert inside.services.admin_chats.send("Tea is ready.", "tea") == 0


def test_an_owner_hears_of_a_platform_that_refuses_us(world: World) -> None:
    with Inside(world):
        _choose_home(world)
    text = world.home.config.read_text()
    world.home.config.write_text(f'{text}\n[gateway.platforms.telegram]\ntoken = "no token"\n')
    for _ in range(2):
        with Inside(world):
            notice = world.wait_for_text("home", "telegram is off").text
            assert "token is missing or malformed" in notice
    assert len(_notices(world, "telegram is off")) == 1


def test_an_owner_hears_once_a_day_that_the_gateway_was_killed(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        _choose_home(world)
        gateway.kill()
    for _ in range(2):
        with Process(world) as gateway:
            gateway.wait_until_up()
            world.wait_for_text("home", "The gateway ended unexpectedly")
            gateway.kill()
    with Inside(world):
        world.platform.say("home", "anything else?")
        world.wait_for_text("home", "You said: anything else?")
    assert len(_notices(world, "The gateway ended unexpectedly")) == 1


def test_nobody_hears_of_a_gateway_that_was_stopped(world: World) -> None:
    for number in range(2):
        with Process(world) as gateway:
            gateway.wait_until_up()
            if not number:
                _choose_home(world)
            assert gateway.terminate() == 0
    assert len(world.replies("home")) == 1

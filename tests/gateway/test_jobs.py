"""What /background has done beside a conversation: seen, answered and stopped in its chat."""

from hermes_agent.testing.scripted import Quiet, silence
from tests.gateway.faults import eventually
from tests.gateway.living import Inside, Process, World

_PATIENCE_S = 10


def test_a_job_that_a_kill_cut_off_goes_on_beside_its_conversation(world: World) -> None:
    before, after = Quiet(), Quiet()
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.play(silence(before))
        world.platform.say("a", "/background look it up")
        assert before.begun.wait(_PATIENCE_S)
        gateway.kill()
    world.play(silence(after, then="looked up"))
    with Inside(world) as inside:
        assert after.begun.wait(_PATIENCE_S)
        world.platform.say("a", "and meanwhile?")
        world.wait_for_text("a", "You said: and meanwhile?")
        assert "looked up" not in world.replies("a")
        after.release()
        world.wait_for_text("a", "looked up")
        eventually(lambda: inside.store.turns.still_open() == [], "the end of the turns")

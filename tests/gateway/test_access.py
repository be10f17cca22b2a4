"""Who may speak to the agent, as what, and that nothing of one person shows to another."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access import Access, Limits
from gateway.config import Platform
from gateway.source import SessionSource, is_shared_multi_user_session
from hermes_agent import commands
from hermes_agent.agent import Agent
from hermes_agent.approval import rights
from hermes_agent.approval.gate import Permit
from hermes_agent.commands import PluginCommand
from hermes_agent.permissions import Permissions
from hermes_agent.skills import Skill
from hermes_agent.testing.scripted import ScriptedModel
from hermes_agent.tools.base import Call, Result
from hermes_agent.tools.registry import Toolbox
from hermes_agent.tools.session_search import TOOL as SEARCH
from hermes_agent.turn.stop import Stop
from hermes_core import config
from hermes_core.errors import ConfigError, SessionNotFoundError, ToolError, UsageError
from hermes_core.settings import GatewaySettings, RoleSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import people, questions, turns
from hermes_state.values import NewSession, Person, Question, Role, Scope
from tests.support.examples import examples

pytestmark = pytest.mark.promise("P7")


@pytest.fixture
def store() -> Iterator[SessionDB]:
    with SessionDB.in_memory() as opened:
        yield opened


def chat(user_id: str | None = "1", platform: str = "telegram", **more: Any) -> SessionSource:
    """A direct chat of somebody."""
    return SessionSource(Platform(platform), str(user_id), user_id=user_id, **more)


def create_access(store: SessionDB, trusted: tuple[str, ...] = (), **gateway: Any) -> Access:
    return Access(store, Settings(gateway=GatewaySettings(**gateway)), trusted)


def let_in(store: SessionDB, user_id: str, role: Role, platform: str = "telegram") -> None:
    store.write(people.save, Person(platform, user_id, role, None, None, 0.0, "test"))


# -- roles -----------------------------------------------------------------------------------------


def test_nobody_may_speak_who_is_not_named(store: SessionDB) -> None:
    access = create_access(store)
    assert access.role_of(chat()) is None
    assert access.role_of(chat(None)) is None
    assert access.role_of(chat(is_bot=True)) is None
    group = SessionSource(Platform.TELEGRAM, "-9", chat_type="group", user_id="1")
    assert access.role_of(group) is None


def test_a_stranger_may_invite_us_only_until_somebody_may_write(store: SessionDB) -> None:
    assert create_access(store).may_invite(chat("9", "matrix"))
    assert not create_access(store, allow={"matrix": ["1"]}).may_invite(chat("9", "matrix"))
    assert create_access(store, allow={"matrix": ["1"]}).may_invite(chat("1", "matrix"))
    let_in(store, "2", "guest", "matrix")
    assert not create_access(store).may_invite(chat("9", "matrix"))
    assert create_access(store).may_invite(chat("2", "matrix"))
    assert not create_access(store).may_invite(chat(None, "matrix")), "the server does not say who"
    assert create_access(store).may_invite(chat("9", "telegram"))


def test_settings_name_owners_and_members_each_platform(store: SessionDB) -> None:
    access = create_access(store, owners={"telegram": ["1"]}, allow={"telegram": ["2", "1"]})
    assert [access.role_of(chat(user_id)) for user_id in "123"] == ["owner", "member", None]
    assert access.role_of(chat("1", "matrix")) is None


def test_the_id_that_stays_counts_as_well_as_the_one_that_is_seen(store: SessionDB) -> None:
    access = create_access(store, allow={"telegram": ["stable"]})
    assert access.role_of(chat("new name", user_id_alt="stable")) == "member"
    let_in(store, "stable", "owner")
    assert access.role_of(chat("another name", user_id_alt="stable")) == "owner"


def test_people_who_were_let_in_speak_at_once_and_no_longer_when_they_are_put_out(
    store: SessionDB,
) -> None:
    access = create_access(store)
    let_in(store, "1", "guest")
    assert access.role_of(chat()) == "guest"
    let_in(store, "1", "owner")
    assert access.role_of(chat()) == "owner"
    store.write(people.remove, "telegram", "1")
    assert access.role_of(chat()) is None


def test_the_best_that_is_said_of_somebody_counts(store: SessionDB) -> None:
    access = create_access(store, allow={"telegram": ["1"]})
    let_in(store, "1", "guest")
    assert access.role_of(chat()) == "member"
    let_in(store, "1", "owner")
    assert access.role_of(chat()) == "owner"


def test_everybody_may_be_a_member_but_no_bot_and_nobody_without_a_name(store: SessionDB) -> None:
    access = create_access(store, allow={"telegram": ["*"]})
    let_in(store, "2", "guest")
    assert access.role_of(chat()) == "member"
    assert access.role_of(chat("2")) == "guest", "what is said by name comes first"
    assert access.role_of(chat(is_bot=True)) is None
    assert access.role_of(chat(None)) is None


def test_not_everybody_can_be_an_owner(store: SessionDB) -> None:
    with pytest.raises(ConfigError, match="owners"):
        create_access(store, owners={"telegram": ["*"]})


def test_a_bot_speaks_when_it_is_listed(store: SessionDB) -> None:
    access = create_access(store, ("api_server",), allow={"telegram": ["1"]})
    assert access.role_of(chat(is_bot=True)) == "member"
    assert access.role_of(chat("7", "api_server", is_bot=True)) is None


def test_who_has_the_token_of_a_surface_is_an_owner_unless_it_is_said_otherwise(
    store: SessionDB,
) -> None:
    access = create_access(store, ("api_server",), allow={"api_server": ["bob"]})
    assert access.role_of(chat(None, "api_server")) == "owner"
    assert access.role_of(chat("ann", "api_server")) == "owner"
    assert access.role_of(chat("bob", "api_server")) == "member"


def test_whom_a_platform_vouches_for_is_a_member(store: SessionDB) -> None:
    assert create_access(store).role_of(chat(role_authorized=True)) == "member"
    assert create_access(store).role_of(chat(role_authorized=True, is_bot=True)) is None


def test_each_role_has_its_tools_and_its_money(store: SessionDB) -> None:
    access = Access(store, Settings(roles=RoleSettings(guest_tools=[], member_usd_per_day=2)))
    assert access.limits_of("owner") == Limits(None, 0)
    member = access.limits_of("member")
    assert member.usd_per_day == 2
    assert "web_search" in (member.tools or ())
    assert "terminal" not in (member.tools or ()) and "memory" not in (member.tools or ())
    assert access.limits_of("guest") == Limits(frozenset(), 0.5), "no tools are no tools"


def test_who_may_not_speak_any_more_has_the_standing_of_a_guest(store: SessionDB) -> None:
    permissions = create_access(store).permissions_of(chat())
    assert (permissions.role, permissions.person) == ("guest", "telegram:1")
    assert permissions.scope == Scope("telegram", "1")
    assert permissions.tools == frozenset({"clarify"})


def test_somebody_without_a_name_sees_the_one_chat_only(store: SessionDB) -> None:
    unknown = SessionSource(Platform.TELEGRAM, "5")
    assert create_access(store).scope_of(unknown, "guest") == Scope("telegram", None, "5")
    token = SessionSource(Platform.API_SERVER, "5")
    access = create_access(store, ("api_server",))
    assert access.permissions_of(token).scope == Scope("api_server", with_local=True)
    assert access.permissions_of(token).person == "api_server"


# -- nothing of one shows to another ------------------------------------------------------------------


class Talk(NamedTuple):
    """A conversation that there is: where it is held, or None in the terminal."""

    place: SessionSource | None
    id: str
    secret: str
    message_id: int
    question_id: str


@dataclass
class Surface:
    """A chat as commands see it."""

    agent: Agent
    permissions: Permissions
    is_running: bool = False
    stop: Stop = field(default_factory=Stop)
    background_sessions: tuple[str, ...] = ()
    opened: list[str | None] = field(default_factory=list[str | None])
    plugins: dict[str, PluginCommand] = field(default_factory=dict[str, PluginCommand])
    skills: dict[str, Skill] = field(default_factory=dict[str, Skill])

    @property
    def conversation(self) -> Agent:
        return self.agent

    def open(self, session_id: str | None, end_reason: str) -> None:
        del end_reason
        self.opened.append(session_id)

    def send(self, content: Any, replaces: int | None = None) -> None: ...

    def models(self) -> str:
        return ""

    def use_model(self, name: str) -> str:
        return name

    def leave(self) -> None: ...

    def type(self, line: str) -> str:
        parsed = commands.parse(line)
        assert parsed is not None
        return commands.run(self, parsed)


places = st.builds(
    lambda platform, user, where: SessionSource(
        platform,
        where[0] or user,
        chat_type="group" if where[0] else "dm",
        thread_id=where[1],
        user_id=user,
    ),
    st.sampled_from([Platform.TELEGRAM, Platform.MATRIX]),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from([(None, None), (None, "7"), ("-1", None), ("-1", "7"), ("-2", None)]),
)
roles = st.dictionaries(
    st.tuples(st.sampled_from(["telegram", "matrix"]), st.sampled_from("123")),
    st.sampled_from(["owner", "member", "guest"]),
)


@given(
    held=st.lists(places | st.none(), min_size=1, max_size=8),
    viewers=st.lists(places, min_size=1, max_size=3),
    roles=roles,
    per_user=st.tuples(st.booleans(), st.booleans()),
)
@settings(max_examples=examples(60), deadline=None)
def test_nothing_of_one_person_shows_to_another_on_any_door(
    held: list[SessionSource | None],
    viewers: list[SessionSource],
    roles: dict[tuple[str, str], Role],
    per_user: tuple[bool, bool],
) -> None:
    gateway = GatewaySettings(
        group_sessions_per_user=per_user[0], thread_sessions_per_user=per_user[1]
    )
    with SessionDB.in_memory() as store:
        access = Access(store, Settings(gateway=gateway))
        for (platform, user), role in roles.items():
            let_in(store, user, role, platform)
        talks = [_talk(store, access, number, place) for number, place in enumerate(held)]
        for viewer in viewers:
            permissions = access.permissions_of(viewer)
            seen = [talk for talk in talks if _may_see(viewer, permissions, talk.place, gateway)]
            with closing(_agent(store, access, viewer)) as agent:
                _look_through_every_door(Surface(agent, permissions), talks, seen)


def _may_see(
    viewer: SessionSource,
    permissions: Permissions,
    place: SessionSource | None,
    how: GatewaySettings,
) -> bool:
    """The rule, in words of its own: what is said above, not how it is looked up."""
    if place is None:
        return permissions.role == "owner" and not viewer.is_group
    if place.platform is not viewer.platform:
        return False
    is_shared = is_shared_multi_user_session(
        place,
        group_sessions_per_user=how.group_sessions_per_user,
        thread_sessions_per_user=how.thread_sessions_per_user,
    )
    is_own = not is_shared and place.user_id == viewer.user_id
    if not viewer.is_group:
        return is_own
    is_here = (place.chat_id, place.thread_id) == (viewer.chat_id, viewer.thread_id)
    return is_here and (is_own or is_shared)


def _talk(store: SessionDB, access: Access, number: int, place: SessionSource | None) -> Talk:
    """A conversation with a secret in its words, its title and a question that waits."""
    id_, secret = f"2026_{number}", f"secret{number}x"
    fields = access.fields_of(place) if place else {}
    source = place.platform.value if place else "cli"
    message = {"role": "user", "content": f"the needle of {secret}"}
    accepted = store.write(turns.accept, id_, message, new_session=NewSession(source, fields))
    store.set_session_title(id_, f"about {secret}")
    question = Question(accepted.turn_id, "c", "approval", "terminal", f"Run {secret}?")
    return Talk(place, id_, secret, accepted.message_id, store.write(questions.ask, question)["id"])


def _agent(store: SessionDB, access: Access, viewer: SessionSource) -> Agent:
    return Agent(
        ScriptedModel(["Hi."]),
        Toolbox([SEARCH]),
        store,
        Settings(),
        config.home(),
        source=viewer.platform.value,
        fields=access.fields_of(viewer),
        permissions=access.permissions_of(viewer),
    )


def _look_through_every_door(surface: Surface, talks: list[Talk], seen: list[Talk]) -> None:
    outputs = [surface.type("/sessions"), surface.type("/search needle"), surface.type("/resume")]
    outputs += [surface.type("/status"), _search(surface, query="needle")]
    for talk in talks:
        outputs += [
            surface.type(f"/sessions {talk.secret}"),
            surface.type(f"/search {talk.secret}"),
        ]
        outputs.append(_search(surface, query="needle", session=talk.id))
        outputs.append(_search(surface, session=talk.id, around=talk.message_id))
        for way in (talk.id, f"about {talk.secret}"):
            if talk in seen:
                surface.type(f"/resume {way}")
                assert surface.opened.pop() == talk.id
            else:
                with pytest.raises(SessionNotFoundError):
                    surface.type(f"/resume {way}")
        # A question is answered in its own conversation and nowhere else, whoever sees it.
        with pytest.raises(UsageError, match="no open question"):
            rights.answer(
                surface.agent.store,
                talk.question_id,
                "once",
                conversations=[surface.agent.conversation_id],
                permissions=surface.permissions,
            )
    assert surface.type("/approve always") == "There is no open question."
    with suppress(SessionNotFoundError):
        surface.type("/resume 2026_")
        assert surface.opened == [talk.id for talk in seen], "only when there is exactly one"
    for talk in talks:
        found = any(_tells(text, talk) for text in outputs)
        assert found is (talk in seen)


def _tells(text: str, talk: Talk) -> bool:
    """Whether words of a conversation are shown; what the viewer typed is not shown by that."""
    return f"needle of {talk.secret}" in text.replace(">>>", "").replace("<<<", "")


def _search(surface: Surface, **args: Any) -> str:
    call = Call(
        id="c",
        session_id=surface.agent.session_id,
        turn_id="t",
        bench=surface.agent.tool_context,
        stop=Stop(),
        permit=Permit._for_tests(),
        progress=lambda _text: None,
        ask_user=lambda question, choices: f"{question} {choices}",
        ask_host=lambda _host: None,
        note_host=lambda _host: None,
        run_tool=lambda name, arguments: Result(f"{name} {arguments}"),
        delegate=lambda task, context: Result(f"{task} {context}"),
        note_read=lambda _source: None,
    )
    try:
        found = SEARCH.run(args, call)
    except ToolError as error:
        return str(error)
    return found if isinstance(found, str) else found.text


@given(held=st.lists(places, min_size=2, max_size=6), per_user=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_a_title_is_refused_only_for_what_the_person_can_see(
    held: list[SessionSource], per_user: bool
) -> None:
    gateway = GatewaySettings(group_sessions_per_user=per_user)
    with SessionDB.in_memory() as store:
        access = Access(store, Settings(gateway=gateway))
        pairs: set[tuple[str, str]] = set()
        for number, place in enumerate(held):
            fields = access.fields_of(place)
            store.create_session(str(number), place.platform.value, **fields)
            whose = (place.platform.value, fields.get("user_id") or f"chat {place.chat_id}")
            try:
                store.set_session_title(str(number), "the same")
            except ValueError:
                assert whose in pairs
            else:
                assert whose not in pairs
            pairs.add(whose)

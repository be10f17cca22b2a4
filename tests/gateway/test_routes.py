"""Which conversation a chat is in: keys, entries, routes in the store, and the file that shows them."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import GatewayConfig, Platform, SessionResetPolicy
from gateway.session import SessionEntry, SessionSource, SessionStore, build_session_key
from hermes_core import clock
from hermes_core.errors import StoreFullError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import routes as route_ledger
from hermes_state.ledger import turns
from hermes_state.values import NewSession, Route
from tests.support.faults import disk_full_at

_NOON = datetime.fromisoformat("2026-07-20T12:00").timestamp()


@pytest.fixture
def db(home: Home) -> Iterator[SessionDB]:
    home.create()
    with SessionDB(home.database) as database:
        yield database


@pytest.fixture
def routes(db: SessionDB, home: Home) -> Iterator[SessionStore]:
    store = _routes(db, home)
    yield store
    store.close()


def _routes(db: SessionDB, home: Home, **changes: object) -> SessionStore:
    config = GatewayConfig(sessions_dir=home.sessions)
    for name, value in changes.items():
        setattr(config, name, value)
    return SessionStore(home.sessions, config, db=db)


def _source(**more: object) -> SessionSource:
    fields = {"platform": Platform.TELEGRAM, "chat_id": "c", "user_id": "u", **more}
    return SessionSource(**fields)  # type: ignore[arg-type]


# -- keys ----------------------------------------------------------------------------------------

_GROUP: dict[str, object] = {"chat_type": "group"}
_KEYS: list[tuple[dict[str, object], dict[str, Any], str]] = [
    ({}, {}, "dm:c"),
    ({"thread_id": "t"}, {}, "dm:c:t"),
    ({"chat_id": ""}, {}, "dm:u"),
    ({"chat_id": "", "user_id_alt": "alt"}, {}, "dm:alt"),
    ({"chat_id": "", "thread_id": "t"}, {}, "dm:u:t"),
    ({"chat_id": "", "user_id": None, "thread_id": "t"}, {}, "dm:t"),
    ({"chat_id": "", "user_id": None}, {}, "dm"),
    (_GROUP, {}, "group:c:u"),
    ({**_GROUP, "user_id_alt": "alt"}, {}, "group:c:alt"),
    ({"chat_type": "channel"}, {}, "channel:c:u"),
    (_GROUP, {"group_sessions_per_user": False}, "group:c"),
    ({**_GROUP, "user_id": None}, {}, "group:c"),
    ({**_GROUP, "thread_id": "t"}, {}, "group:c:t"),
    ({"chat_type": "forum", "thread_id": "t"}, {}, "forum:c:t"),
    ({**_GROUP, "thread_id": "t"}, {"thread_sessions_per_user": True}, "group:c:t:u"),
    (
        {**_GROUP, "thread_id": "t"},
        {"thread_sessions_per_user": True, "group_sessions_per_user": False},
        "group:c:t",
    ),
    ({**_GROUP, "chat_id": ""}, {}, "group:u"),
    ({**_GROUP, "chat_id": "", "user_id": None}, {}, "group"),
]


@pytest.mark.parametrize(("source", "switches", "key"), _KEYS)
def test_the_key_names_the_conversation_that_a_message_belongs_to(
    source: dict[str, object], switches: dict[str, Any], key: str
) -> None:
    assert build_session_key(_source(**source), **switches) == f"agent:main:telegram:{key}"


def test_a_profile_has_keys_of_its_own() -> None:
    assert build_session_key(_source(), profile="work") == "agent:work:telegram:dm:c"
    assert build_session_key(_source(), profile="default") == "agent:main:telegram:dm:c"


@given(
    st.text(st.characters(exclude_characters=":"), min_size=1),
    st.text(st.characters(exclude_characters=":"), min_size=1),
)
def test_two_chats_never_have_the_same_key(first: str, other: str) -> None:
    keys = {build_session_key(_source(chat_id=chat)) for chat in (first, other)}
    assert len(keys) == len({first, other})


# -- entries -------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = SessionEntry(
        "agent:main:telegram:dm:c",
        "20260720_120000_abcd1234",
        datetime.fromisoformat("2026-07-20T12:00"),
        datetime.fromisoformat("2026-07-20T13:00"),
        origin=_source(thread_id="t", scope_id="guild"),
        display_name="Ada",
        platform=Platform.TELEGRAM,
        suspended=True,
        model_override={"model": "small"},
    )
    assert SessionEntry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry


def test_an_entry_of_hermes_agent_is_understood() -> None:
    stored_entry = {
        "session_key": "agent:main:discord:group:g:u",
        "session_id": "20260101_101010_deadbeef",
        "created_at": "2026-01-01T10:10:10",
        "updated_at": "2026-01-02T10:10:10.123456",
        "display_name": None,
        "platform": "discord",
        "chat_type": "group",
        "input_tokens": 12,
        "memory_flushed": True,
        "last_resume_marked_at": "nonsense",
        "something_newer": [1, 2],
        "origin": {"platform": "discord", "chat_id": "g", "chat_type": "group", "guild_id": "x"},
        "model_override": {"model": "m", "api_key": "secret"},
    }
    entry = SessionEntry.from_dict(stored_entry)
    assert entry.platform is Platform.DISCORD
    assert entry.expiry_finalized
    assert entry.origin is not None
    assert entry.origin.scope_id == "x"
    assert entry.model_override == {"model": "m"}
    assert "secret" not in json.dumps(entry.to_dict())


@pytest.mark.parametrize(
    ("key", "session_id"),
    [
        ("agent:main:x:dm:c", "../../etc/passwd"),
        ("agent:main:x:dm:c", "a/b"),
        ("agent:main:x:dm:c", "C:evil"),
        ("../x", "20260101_101010_deadbeef"),
        ("/x", "20260101_101010_deadbeef"),
    ],
)
def test_an_entry_that_names_a_path_is_refused(key: str, session_id: str) -> None:
    with pytest.raises(ValueError, match="does not name a session"):
        SessionEntry.from_dict(
            {
                "session_key": key,
                "session_id": session_id,
                "created_at": "2026-01-01T10:10:10",
                "updated_at": "2026-01-01T10:10:10",
            }
        )


# -- routes --------------------------------------------------------------------------------------


def test_a_chat_stays_in_its_conversation_across_restarts(db: SessionDB, home: Home) -> None:
    first = _routes(db, home)
    entry = first.get_or_create_session(_source())
    assert first.get_or_create_session(_source()) is entry
    first.close()
    again = _routes(db, home).get_or_create_session(_source())
    assert again.session_id == entry.session_id


def test_a_save_of_one_route_is_one_row_and_does_not_write_the_file(
    db: SessionDB, home: Home
) -> None:
    routes = _routes(db, home)
    for number in range(10_000):
        routes._entries[f"agent:main:telegram:dm:{number}"] = routes.entry_for(
            f"agent:main:telegram:dm:{number}", f"s{number}", _source(chat_id=str(number))
        )
    routes._loaded = True
    routes._save()
    routes.close()
    mirror = home.sessions / "sessions.json"
    before = mirror.read_bytes()
    changed = _rows_written(db, lambda: routes.set_model_override("agent:main:telegram:dm:7", None))
    assert changed == 1
    changed = _rows_written(db, lambda: routes.get_or_create_session(_source(chat_id="new")))
    assert changed == 1
    assert mirror.read_bytes() == before
    assert len(json.loads(before)) == 10_001


def _rows_written(db: SessionDB, do: Callable[[], object]) -> int:
    def count() -> int:
        return db.write(lambda c: c.value("SELECT total_changes()"))

    before = count()
    do()
    return count() - before


def test_the_file_begins_with_a_note_and_is_written_as_a_whole(
    routes: SessionStore, home: Home
) -> None:
    routes.get_or_create_session(_source())
    routes.close()
    path = home.sessions / "sessions.json"
    document = json.loads(path.read_text())
    assert next(iter(document)) == "_README"
    assert "state.db" in document["_README"]
    assert "hermes sessions list" in document["_README"]
    assert list(document)[1:] == ["agent:main:telegram:dm:c"]
    assert [file.name for file in home.sessions.iterdir()] == ["sessions.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reader_of_the_file_never_sees_half_of_it(routes: SessionStore, home: Home) -> None:
    for number in range(500):
        routes._entries[str(number)] = routes.entry_for(str(number), f"s{number}", None)
    routes._routes_file.now()
    path, over, bad = home.sessions / "sessions.json", threading.Event(), list[str]()

    def read() -> None:
        while not over.is_set():
            try:
                assert len(json.loads(path.read_text())) == 501
            except (AssertionError, ValueError) as error:
                bad.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        routes._routes_file.now()
    over.set()
    reader.join()
    assert bad == []


def _session_in(routes: SessionStore, source: SessionSource) -> str | None:
    entry = routes.peek(routes.key_of(source))
    return entry.session_id if entry is not None else None


def test_the_file_is_read_for_chats_that_the_store_does_not_know(db: SessionDB, home: Home) -> None:
    first = _routes(db, home)
    entry = first.get_or_create_session(_source(chat_id="known"))
    other = first.get_or_create_session(_source(chat_id="other"))
    first.close()
    db.write(route_ledger.delete, [other.session_key])
    path = home.sessions / "sessions.json"
    document = json.loads(path.read_text())
    document[entry.session_key]["session_id"] = "changed_by_hand"
    document["agent:main:telegram:dm:bad"] = {"session_id": "../x"}
    document["agent:main:telegram:dm:worse"] = "nothing"
    path.write_text(json.dumps(document))
    second = _routes(db, home)
    assert _session_in(second, _source(chat_id="known")) == entry.session_id
    assert _session_in(second, _source(chat_id="other")) == other.session_id
    assert len(second.list_sessions()) == 2
    second.save_changes()
    second._save()
    assert db.read(route_ledger.find, other.session_key) is not None
    second.close()


def test_a_file_that_cannot_be_read_stops_nobody(db: SessionDB, home: Home) -> None:
    home.sessions.mkdir(parents=True, exist_ok=True)
    (home.sessions / "sessions.json").write_text("{ half")
    assert _routes(db, home).get_or_create_session(_source()).session_id


def test_the_route_of_a_platform_that_is_switched_off_is_kept(db: SessionDB, home: Home) -> None:
    entry = {
        "created_at": "2026-01-01T10:10:10",
        "updated_at": "2026-01-01T10:10:10",
        "platform": "gone_plugin",
        "origin": {"platform": "gone_plugin", "chat_id": "c"},
    }
    db.write(route_ledger.save, Route("agent:main:gone_plugin:dm:c", json.dumps(entry)), "s1")
    db.write(route_ledger.save, Route("agent:main:odd:dm:c", "not JSON"), "s2")
    routes = _routes(db, home)
    assert [session.session_id for session in routes.list_sessions()] == ["s1"]
    routes.prune_old_entries(1)
    assert db.read(route_ledger.find, "agent:main:gone_plugin:dm:c") is None
    assert db.read(route_ledger.find, "agent:main:odd:dm:c") is not None
    routes.close()


def test_a_route_that_cannot_be_stored_is_none(db: SessionDB, home: Home) -> None:
    routes = _routes(db, home)
    with disk_full_at(db, "INSERT ON routes"):
        with pytest.raises(StoreFullError):
            routes.get_or_create_session(_source())
        assert _session_in(routes, _source()) is None
    entry = routes.get_or_create_session(_source())
    assert db.read(route_ledger.find, entry.session_key) is not None
    with disk_full_at(db, "INSERT ON routes"), pytest.raises(StoreFullError):
        routes.reset_session(entry.session_key)
    assert _session_in(routes, _source()) == entry.session_id
    routes.close()


def test_a_mark_that_could_not_be_stored_is_stored_with_the_next_one(
    db: SessionDB, home: Home
) -> None:
    routes = _routes(db, home)
    entry = routes.get_or_create_session(_source())
    with disk_full_at(db, "INSERT ON routes"), pytest.raises(StoreFullError):
        routes.set_model_override(entry.session_key, {"model": "small"})
    routes.save_changes()
    routes.close()
    assert _routes(db, home).list_sessions()[0].model_override == {"model": "small"}


def test_a_reset_ends_the_old_conversation_and_begins_another(
    routes: SessionStore, db: SessionDB
) -> None:
    old = routes.get_or_create_session(_source())
    db.create_session(old.session_id, "telegram")
    new = routes.reset_session(old.session_key, "Ada")
    assert new is not None
    assert new.session_id != old.session_id
    row = db.get_session(old.session_id)
    assert row is not None
    assert row["end_reason"] == "session_reset"
    stored = db.read(route_ledger.find, old.session_key)
    assert stored is not None
    document = json.loads(stored["entry"])
    assert document["display_name"] == "Ada"
    assert routes.reset_session("unknown") is None


def test_a_chat_moves_to_another_conversation_which_is_open_again(
    routes: SessionStore, db: SessionDB
) -> None:
    entry = routes.get_or_create_session(_source())
    db.create_session(entry.session_id, "telegram")
    db.create_session("target", "cli")
    db.end_session("target", "cli_close")
    moved = routes.switch_session(entry.session_key, "target")
    assert moved is not None
    assert moved.session_id == "target"
    target, old = db.get_session("target"), db.get_session(entry.session_id)
    assert target is not None
    assert old is not None
    assert target["ended_at"] is None
    assert old["end_reason"] == "session_switch"


def test_a_conversation_that_two_chats_are_in_ends_with_the_last_of_them(
    routes: SessionStore, db: SessionDB
) -> None:
    first = routes.get_or_create_session(_source(chat_id="one"))
    db.create_session(first.session_id, "telegram")
    two = routes.get_or_create_session(_source(chat_id="two"))
    routes.switch_session(two.session_key, first.session_id)
    routes.reset_session(first.session_key)
    row = db.get_session(first.session_id)
    assert row is not None
    assert row["ended_at"] is None
    assert routes.get_or_create_session(_source(chat_id="two")).session_id == first.session_id
    routes.reset_session(two.session_key)
    row = db.get_session(first.session_id)
    assert row is not None
    assert row["end_reason"] == "session_reset"


def test_what_another_surface_closed_is_opened_again(routes: SessionStore, db: SessionDB) -> None:
    entry = routes.get_or_create_session(_source())
    db.create_session(entry.session_id, "telegram")
    db.end_session(entry.session_id, "tui_close")
    assert routes.get_or_create_session(_source()).session_id == entry.session_id
    row = db.get_session(entry.session_id)
    assert row is not None
    assert row["ended_at"] is None


# -- when a conversation starts afresh -------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "later", "reason"),
    [
        (SessionResetPolicy("none"), timedelta(days=400), None),
        (SessionResetPolicy("idle", idle_minutes=10), timedelta(minutes=10), None),
        (SessionResetPolicy("idle", idle_minutes=10), timedelta(minutes=10, seconds=1), "idle"),
        (SessionResetPolicy("daily", at_hour=4), timedelta(hours=15, minutes=59), None),
        (SessionResetPolicy("daily", at_hour=4), timedelta(hours=16), "daily"),
        (SessionResetPolicy("both", 4, 10), timedelta(minutes=11), "idle"),
        (SessionResetPolicy("both", 4, 10_000), timedelta(hours=17), "daily"),
        (SessionResetPolicy("both", 4, 10_000), timedelta(hours=1), None),
    ],
)
def test_a_policy_resets_at_its_edge(
    db: SessionDB, home: Home, policy: SessionResetPolicy, later: timedelta, reason: str | None
) -> None:
    routes = _routes(db, home, default_reset_policy=policy)
    with clock.replaced(lambda: _NOON):
        old = routes.get_or_create_session(_source())
    with clock.replaced(lambda: _NOON + later.total_seconds()):
        assert routes._is_session_expired(old) == (reason is not None)
        new = routes.get_or_create_session(_source())
    assert new.auto_reset_reason == reason
    assert (new.session_id != old.session_id) == (reason is not None)
    routes.close()


def test_a_platform_has_its_policy_before_a_kind_of_chat_has_it() -> None:
    idle, daily = SessionResetPolicy("idle"), SessionResetPolicy("daily")
    config = GatewayConfig(
        reset_by_platform={Platform.TELEGRAM: idle}, reset_by_type={"group": daily}
    )
    assert config.get_reset_policy(Platform.TELEGRAM, "group") is idle
    assert config.get_reset_policy(Platform.SLACK, "group") is daily
    assert config.get_reset_policy(Platform.SLACK, "dm").mode == "none"


def test_a_conversation_with_running_processes_does_not_start_afresh(
    db: SessionDB, home: Home
) -> None:
    busy: list[bool] = [True]
    config = GatewayConfig(
        sessions_dir=home.sessions, default_reset_policy=SessionResetPolicy("idle")
    )
    routes = SessionStore(home.sessions, config, lambda _key: busy[0], db=db)
    with clock.replaced(lambda: _NOON):
        entry = routes.get_or_create_session(_source())
    with clock.replaced(lambda: _NOON + 3 * 86400):
        assert not routes._is_session_expired(entry)
        busy[0] = False
        assert routes._is_session_expired(entry)
    routes.close()


def test_a_suspended_chat_finds_a_new_conversation_with_its_next_message(
    routes: SessionStore,
) -> None:
    entry = routes.get_or_create_session(_source())
    entry.suspended = True
    new = routes.get_or_create_session(_source())
    assert new.session_id != entry.session_id
    assert new.auto_reset_reason == "suspended"
    assert not new.suspended


def _after_three_months(db: SessionDB, home: Home, policy: SessionResetPolicy) -> list[str]:
    """The conversations of a chat before its route was forgotten, and afterwards."""
    config = GatewayConfig(sessions_dir=home.sessions, default_reset_policy=policy)
    routes = SessionStore(home.sessions, config, db=db)
    with clock.replaced(lambda: _NOON):
        before = routes.get_or_create_session(_source())
        db.create_session(before.session_id, "telegram", session_key=before.session_key)
    with clock.replaced(lambda: _NOON + 91 * 86400):
        assert routes.prune_old_entries(90) == 1
        after = routes.get_or_create_session(_source())
        assert db.read(route_ledger.keys_of, after.session_id) == {before.session_key}
    routes.close()
    return [before.session_id, after.session_id]


def test_a_chat_whose_route_was_forgotten_goes_on_where_it_was(db: SessionDB, home: Home) -> None:
    before, after = _after_three_months(db, home, SessionResetPolicy(mode="none"))
    assert before == after


def test_a_chat_that_was_silent_too_long_does_not_go_on(db: SessionDB, home: Home) -> None:
    before, after = _after_three_months(db, home, SessionResetPolicy(mode="idle"))
    assert before != after
    assert (db.get_session(before) or {})["end_reason"] == "session_reset"


def test_a_conversation_that_was_left_is_not_taken_up_by_itself(db: SessionDB, home: Home) -> None:
    routes = _routes(db, home)
    entry = routes.get_or_create_session(_source())
    db.create_session(entry.session_id, "telegram", session_key=entry.session_key)
    routes.reset_session(entry.session_key)
    db.write(route_ledger.delete, [entry.session_key])
    del routes._entries[entry.session_key]
    assert routes.get_or_create_session(_source()).session_id != entry.session_id


def test_only_silent_chats_are_forgotten(db: SessionDB, home: Home) -> None:
    config = GatewayConfig(sessions_dir=home.sessions)
    routes = SessionStore(home.sessions, config, lambda key: key.endswith("busy"), db=db)
    with clock.replaced(lambda: _NOON):
        entries = {
            name: routes.get_or_create_session(_source(chat_id=name))
            for name in ("old", "suspended", "busy")
        }
        entries["suspended"].suspended = True
    with clock.replaced(lambda: _NOON + 91 * 86400):
        routes.get_or_create_session(_source(chat_id="young"))
        assert routes.prune_old_entries(0) == 0
        assert routes.prune_old_entries(90) == 1
        assert routes.prune_old_entries(90) == 0
    remaining = {entry.session_key.rpartition(":")[2] for entry in routes.list_sessions()}
    assert remaining == {"suspended", "busy", "young"}
    assert db.read(route_ledger.find, entries["old"].session_key) is None
    routes.close()


def test_names_with_half_a_character_are_stored(routes: SessionStore, home: Home) -> None:
    routes.get_or_create_session(_source(chat_name="half \ud83d"))
    routes.close()
    assert (home.sessions / "sessions.json").exists()


def test_without_a_store_the_file_keeps_the_routes(tmp_path: Path) -> None:
    config = GatewayConfig(sessions_dir=tmp_path)
    routes = SessionStore(tmp_path, config, db=SessionDB.in_memory())
    routes._db = None
    entry = routes.get_or_create_session(_source())
    again = SessionStore(tmp_path, config, db=SessionDB.in_memory())
    again._db = None
    assert again.get_or_create_session(_source()).session_id == entry.session_id


def test_the_route_of_a_new_chat_can_be_left_to_its_first_message(
    routes: SessionStore, db: SessionDB, home: Home
) -> None:
    entry = routes.get_or_create_session(_source(), saves=False)
    assert db.read(route_ledger.find, entry.session_key) is None
    assert routes.get_or_create_session(_source()) is entry
    route = routes.unsaved_route(entry.session_key)
    opening = NewSession("telegram", route=route)
    db.write(
        turns.accept, entry.session_id, {"role": "user", "content": "hello"}, new_session=opening
    )
    routes.saved(entry.session_key)
    assert routes.unsaved_route(entry.session_key) is None
    again = _routes(db, home)
    assert _session_in(again, _source()) == entry.session_id
    again.close()

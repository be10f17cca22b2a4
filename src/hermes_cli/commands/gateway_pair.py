"""`hermes gateway pair`, `people`, `role` and `forget`: who may write to the agent, and as what."""

from datetime import UTC, datetime

import click

from gateway import pairing
from gateway.pairing import Pairing
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core.settings import GatewaySettings


@click.command("pair")
@click.argument("code")
@click.option("--role", type=click.Choice(pairing.ROLES), help="As what; owner for the first one.")
@click.option("--platform", help="Where they were shown it; without: on any.")
@json_option
@pass_app
def pair(app: App, code: str, role: pairing.Role | None, platform: str | None) -> None:
    """Let in the person who was shown CODE.

    Without --role they become an owner when there is none yet, and a member otherwise.
    """
    with app.store() as store:
        person = Pairing(store, app.settings).approve(code, platform=platform, role=role)
    if app.as_json:
        app.emit(person._asdict())
    app.say(f"{pairing.described(person)} is in now, as {person.role}.")
    if person.role == "owner" and role is None:
        app.say("They are the first one, hence the owner: everything you may do, they may do.")


@click.command("people")
@json_option
@pass_app
def people(app: App) -> None:
    """Show who may write to the agent, and who waits to be let in."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        persons, waiting = pairings.people(), pairings.pending()
    named = list(_named(app.settings.gateway))
    if app.as_json:
        app.emit(
            {
                "people": [person._asdict() for person in persons],
                "settings": [dict(zip(_COLUMNS, one, strict=True)) for one in named],
                "waiting": waiting,
            }
        )
        return
    rows = [(p.platform, p.user_id, p.role, _moment(p.added_at), p.name) for p in persons]
    rows += [(*one, "config.toml", None) for one in named]
    headers = ("Platform", "User", "Role", "Since", "Name")
    app.say(table.render(headers, rows) if rows else "Nobody was let in yet.")
    for row in waiting:
        who = f"{row['name'] or row['user_id']} on {row['platform']}"
        app.say(f"\n{who} waits until {_moment(row['expires_at'])}: hermes gateway pair CODE")


@click.command("role")
@click.argument("platform")
@click.argument("user")
@click.argument("role", type=click.Choice(pairing.ROLES, case_sensitive=False))
@json_option
@pass_app
def role(app: App, platform: str, user: str, role: pairing.Role) -> None:
    """Have USER of PLATFORM, who was let in, be an owner, a member or a guest from now on."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        person, has_owner = pairings.change_role(platform, user, role), pairings.has_owner()
    if app.as_json:
        app.emit({**person._asdict(), "has_owner": has_owner})
    app.say(f"{pairing.described(person)} is {person.role} now.")
    _warn(app, has_owner=has_owner)


def _warn(app: App, *, has_owner: bool) -> None:
    """Say what follows when nobody is an owner any more."""
    if not has_owner:
        app.say(
            "There is no owner now: the next person who is let in without --role becomes one."
            "\nhermes gateway role PLATFORM USER owner makes one of somebody who is in."
        )


@click.command("forget")
@click.argument("platform")
@click.argument("user")
@json_option
@pass_app
def forget(app: App, platform: str, user: str) -> None:
    """Let USER of PLATFORM in no longer; their conversations stay."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        pairings.revoke(platform, user)
        has_owner = pairings.has_owner()
    if app.as_json:
        app.emit({"platform": platform, "user_id": user, "has_owner": has_owner})
    app.say(f"{user} on {platform} may not write to the agent any more.")
    _warn(app, has_owner=has_owner)


_COLUMNS = ("platform", "user_id", "role")


def _named(gateway: GatewaySettings) -> list[tuple[str, str, str]]:
    """Whom the settings let in."""
    owners = [(platform, one, "owner") for platform, ids in gateway.owners.items() for one in ids]
    known = {(platform, one) for platform, one, _ in owners}
    members = [(platform, one, "member") for platform, ids in gateway.allow.items() for one in ids]
    return owners + [one for one in members if one[:2] not in known]


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"

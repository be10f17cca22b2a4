"""`hermes gateway pair`, `people`, `role` and `forget`: access to the agent."""

import click

from gateway import pairing
from gateway.pairing import Pairing
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.table import Column
from hermes_core import clock
from hermes_core.settings import GatewaySettings


@click.command("pair")
@click.argument("code")
@click.option(
    "--role", type=click.Choice(pairing.ROLES), help="Role; the first person becomes owner."
)
@click.option("--platform", help="Platform that showed the code; the default is any.")
@json_option
@pass_app
def pair(app: App, code: str, role: pairing.Role | None, platform: str | None) -> None:
    """Let in the person with the pairing code CODE.

    Without --role they become a member, or the owner if there is none yet.
    """
    with app.store() as store:
        person = Pairing(store, app.settings).approve(code, platform=platform, role=role)
    if app.as_json:
        app.emit(person._asdict())
    app.say(f"{pairing.described(person)} is now {_ROLES[person.role]}.")
    if person.role == "owner" and role is None:
        app.say("The first person becomes the owner and can do everything that you can.")


@click.command("people")
@json_option
@pass_app
def people_(app: App) -> None:
    """List the people with access, and those with a pending pairing code."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        people, pending = pairings.people(), pairings.pending()
    configured = configured_people(app.settings.gateway)
    if app.as_json:
        app.emit(
            {
                "people": [person._asdict() for person in people],
                "settings": [dict(zip(_COLUMNS, row, strict=True)) for row in configured],
                "waiting": pending,
            }
        )
        return
    rows = [(p.platform, p.user_id, p.role, clock.local(p.added_at), p.name) for p in people]
    rows += [(*row, "config.toml", None) for row in configured]
    if rows:
        columns = ("PLATFORM", Column("USER", wraps=True), "ROLE", Column("SINCE", rank=1), "NAME")
        table.show(app, columns, rows)
    else:
        app.say("Nobody has access yet.")
    for row in pending:
        name = f"{row['name'] or row['user_id']} on {row['platform']}"
        until = clock.local(row["expires_at"])
        app.say(f"\n{name} has a code, valid until {until}: hermes gateway pair CODE")


@click.command("role")
@click.argument("platform")
@click.argument("user")
@click.argument("role", type=click.Choice(pairing.ROLES, case_sensitive=False))
@json_option
@pass_app
def role(app: App, platform: str, user: str, role: pairing.Role) -> None:
    """Change the role of USER on PLATFORM."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        person, has_owner = pairings.change_role(platform, user, role), pairings.has_owner()
    if app.as_json:
        app.emit({**person._asdict(), "has_owner": has_owner})
    app.say(f"{pairing.described(person)} is now {_ROLES[person.role]}.")
    _warn(app, has_owner=has_owner)


def _warn(app: App, *, has_owner: bool) -> None:
    """Warn when there is no owner."""
    if not has_owner:
        app.say(
            "There is no owner now: the next person who pairs without --role becomes the owner."
            "\nTo choose another: hermes gateway role PLATFORM USER owner"
        )


@click.command("forget")
@click.argument("platform")
@click.argument("user")
@json_option
@pass_app
def forget(app: App, platform: str, user: str) -> None:
    """Revoke USER's access on PLATFORM; conversations are kept."""
    with app.store() as store:
        pairings = Pairing(store, app.settings)
        pairings.revoke(platform, user)
        has_owner = pairings.has_owner()
    if app.as_json:
        app.emit({"platform": platform, "user_id": user, "has_owner": has_owner})
    app.say(f"Revoked the access of {user} on {platform}.")
    _warn(app, has_owner=has_owner)


_COLUMNS = ("platform", "user_id", "role")
_ROLES = {"owner": "an owner", "member": "a member", "guest": "a guest"}


def configured_people(gateway: GatewaySettings) -> list[tuple[str, str, str]]:
    """Return the people with access by config.toml."""
    roles = {
        (platform, user): role
        for role, table in (("member", gateway.allow), ("owner", gateway.owners))
        for platform, users in table.items()
        for user in users
    }
    return sorted(((*key, role) for key, role in roles.items()), key=lambda row: row[2] != "owner")

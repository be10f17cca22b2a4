"""`hermes undo`: undo the last exchanges of a conversation, and restore the files they changed."""

import click

from hermes_agent import lease, undo
from hermes_agent.conversation import StoredConversation
from hermes_agent.hooks import NoHooks
from hermes_cli.commands.app import App, pass_app
from hermes_cli.commands.sessions import find_session
from hermes_core import config
from hermes_core.errors import SessionNotFoundError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, listing
from hermes_state.values import Filter


@click.command("undo")
@click.argument("conversation", metavar="[CONVERSATION]", default="")
@click.option(
    "-n", "--number", type=click.IntRange(min=1), help="How many exchanges; default: the last one."
)
@click.option("--files", is_flag=True, help="Restore the files that they changed, too.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@pass_app
def command(app: App, conversation: str, number: int | None, files: bool, dry_run: bool) -> None:
    """Undo the last exchanges of a conversation: by ID or title, or the last active one.

    With --files, each file that still holds what the agent left there is restored; your own edits
    since then stay. What cannot be undone is listed.
    """
    config.refuse_in_command("undo anything")
    where = undo.FilesOf(app.home, app.settings.tools)
    with app.store() as store:
        session_id = find_session(store, conversation) if conversation else _latest(store)
        here = StoredConversation(store, store.read(lineage.tip, session_id), "cli", NoHooks())
        undo.check_answered(here)

        def hold() -> undo.Held:
            return lease.held(store, here.conversation_id, here.interrupt)

        if dry_run:
            app.say(undo.preview(here, number, hold, where))
        elif files:
            app.say(undo.undo_with_files(here, number, hold, where))
        else:
            app.say(undo.undo(here, number or 1, hold))


def _latest(store: SessionDB) -> str:
    found = store.read(listing.select, Filter(), limit=1)
    if not found:
        raise SessionNotFoundError("There are no conversations yet.")
    return found[0]["id"]

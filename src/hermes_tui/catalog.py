"""The conversations and models there are: listing, looking into, renaming, deleting, choosing."""

from hermes_core.text import one_line, without_marks
from hermes_protocol import results
from hermes_tui.tabs import Tab, Tabs

_LISTED = 200
_FOUND = 50
_RECENT = 20


class Catalog:
    """Lists, searches, renames and deletes conversations, and lists models."""

    def __init__(self, tabs: Tabs) -> None:
        self._tabs = tabs
        self.client = tabs.client
        self._hits: dict[str, results.Hit] = {}

    @property
    def current_id(self) -> str:
        """The stored id of the conversation that is shown."""
        return self._tabs.current.conversation.stored_id

    def tab(self, stored_id: str) -> Tab | None:
        """The tab of a conversation, if it is open."""
        return self._tabs.stored(stored_id)

    async def rows(self, query: str) -> list[results.Row]:
        """Conversations by last activity; with a query those that have it, at last in a message."""
        answer = await self.client.ask(results.Rows, "session.list", limit=_LISTED, query=query)
        rows = answer.sessions
        self._hits = {}
        if not query:
            return rows
        found = await self.client.ask(results.Hits, "session.search", query=query, limit=_FOUND)
        ids = {row.id for row in rows}
        for hit in found.hits:
            if hit.session_id not in ids:
                ids.add(hit.session_id)
                self._hits[hit.session_id] = hit
                rows.append(_row_of(hit))
        return rows

    async def unanswered(self) -> int:
        """Count the recent conversations, except the shown one, that were left unanswered."""
        answer = await self.client.ask(results.Rows, "session.list", limit=_RECENT)
        return sum(row.pending > 0 and row.id != self.current_id for row in answer.sessions)

    def hit(self, stored_id: str) -> results.Hit | None:
        """The message by which the last search found a conversation, if nothing else matched."""
        return self._hits.get(stored_id)

    async def peek(
        self, stored_id: str, count: int, before: int | None = None
    ) -> list[results.Message]:
        """The last messages of a conversation, which need not be open; or the last before one."""
        place = {} if before is None else {"before": before}
        answer = await self.client.ask(
            results.History, "session.history", session_id=stored_id, limit=count, **place
        )
        return answer.messages

    async def rename(self, stored_id: str, title: str) -> None:
        tab = self.tab(stored_id)
        live = tab.conversation.live_id if tab is not None else ""
        await self.client.call("session.title", session_id=live or stored_id, title=title)

    async def delete(self, stored_id: str) -> None:
        await self.client.call("session.delete", session_id=stored_id)

    async def tree(self) -> list[results.TreeNode]:
        """The parts of the open conversation, parents before children."""
        answer = await self.client.ask(
            results.TreeNodes, "session.tree", session_id=self.current_id
        )
        return answer.sessions

    async def models(self) -> results.ModelOptions:
        """Every model that can be chosen here."""
        return await self._tabs.current.session.ask(results.ModelOptions, "model.options")

    async def choose_model(self, name: str) -> str:
        """Switch to another model; returns the notice of the server."""
        answer = await self._tabs.current.session.call("config.set", key="model", value=name)
        return one_line(
            str(answer.get("warning") or f"{answer.get('value') or name} is in use now.")
        )


def _row_of(hit: results.Hit) -> results.Row:
    return results.Row(
        hit.session_id,
        hit.title,
        without_marks(hit.snippet or ""),
        last_active=hit.timestamp,
        message_count=hit.message_count,
    )

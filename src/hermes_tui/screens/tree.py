"""The tree of a conversation: its branches, and where it was shortened."""

from typing import cast

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Tree

from hermes_core import clock
from hermes_core.errors import HermesError
from hermes_core.text import one_line, truncate
from hermes_tui import wire
from hermes_tui.library import Library
from hermes_tui.moments import ago
from hermes_tui.screens.dialog import Dialog
from hermes_tui.session import Session

_MARKS = {
    "branch": "branch  ",
    "continuation": "shortened  ",
    "undone": "shortened, taken back  ",
    "delegate": "sub-agent  ",
}


class TreeScreen(Dialog[str]):
    """Gives the id of the part that was picked."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._library = Library(session)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="tree") as frame:
            frame.border_title = "Branches and shortenings"
            frame.border_subtitle = "Enter opens · Esc closes"
            tree: Tree[str] = Tree("…", id="nodes")
            tree.show_root = False
            yield tree

    def on_mount(self) -> None:
        self._load()

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            nodes = await self._library.tree()
        except HermesError as error:
            self.dismiss(None)
            self.notify(error.message, severity="warning", markup=False)
            return
        self._grow(nodes)

    def _grow(self, nodes: list[wire.TreeNode]) -> None:
        tree = cast("Tree[str]", self.query_one("#nodes"))
        here, now = self._library.here, clock.now()
        places, parents = {"": tree.root}, {node.parent_session_id for node in nodes}
        for node in nodes:
            place = places.get(node.parent_session_id or "", tree.root)
            places[node.id] = place.add(
                _label(node, here, now),
                data=node.id,
                expand=True,
                allow_expand=node.id in parents,
            )
        tree.root.expand()
        tree.focus()
        if here in places:
            self.call_after_refresh(tree.move_cursor, places[here])

    @on(Tree.NodeSelected)
    def _selected(self, event: Tree.NodeSelected[str]) -> None:
        if event.node.data:
            self.dismiss(event.node.data)


def _label(node: wire.TreeNode, here: str, now: float) -> Text:
    title = truncate(one_line(node.title or node.preview or node.id), 40)
    facts = [f"{node.message_count} messages", ago(node.started_at, now)]
    return Text.assemble(
        (_MARKS.get(node.relation or "", ""), "italic"),
        (title, "bold" if node.id == here else ""),
        (f"  {' · '.join(fact for fact in facts if fact)}", "dim"),
        ("  ← here" if node.id == here else "", "bold"),
    )

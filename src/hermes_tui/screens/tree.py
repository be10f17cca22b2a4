"""The tree of a conversation: its branches, and where it was compacted."""

from typing import cast

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from hermes_core import clock
from hermes_core.clock import ago
from hermes_core.errors import HermesError
from hermes_core.text import one_line, truncate
from hermes_protocol import results
from hermes_tui.catalog import Catalog
from hermes_tui.screens.dialog import Dialog
from hermes_tui.tabs import Tabs

_MARKS = {
    "branch": "branch  ",
    "continuation": "compacted  ",
    "undone": "compaction, undone  ",
    "delegate": "sub-agent  ",
}

_INDENT = 4
_SHORTEST = 8


class TreeScreen(Dialog[str]):
    """Gives the id of the part that was picked."""

    def __init__(self, tabs: Tabs) -> None:
        super().__init__()
        self._catalog = Catalog(tabs)
        self._continued: dict[str, str] = {}
        """The parts that were compacted, and what they continue in."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="tree") as frame:
            frame.border_title = "Branches and compactions"
            frame.border_subtitle = "Enter opens · Esc closes"
            tree: Tree[str] = Tree("…", id="nodes")
            tree.show_root = False
            tree.auto_expand = False  # Enter opens a conversation, Space a part of the tree
            yield tree

    def on_mount(self) -> None:
        self._load()

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            nodes = await self._catalog.tree()
        except HermesError as error:
            self.dismiss(None)
            self.notify(error.message, severity="warning", markup=False)
            return
        self._grow(nodes)

    def _grow(self, nodes: list[results.TreeNode]) -> None:
        tree = cast("Tree[str]", self.query_one("#nodes"))
        here, now = self._catalog.current_id, clock.now()
        self._continued = {
            node.parent_session_id: node.id
            for node in nodes
            if node.parent_session_id and node.relation == "continuation"
        }
        columns = tree.scrollable_content_region.width
        places, parents = {"": tree.root}, {node.parent_session_id for node in nodes}
        for node in nodes:
            place = places.get(node.parent_session_id or "", tree.root)
            places[node.id] = place.add(
                label_of(node, here, now, columns - _INDENT * _depth(place)),
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
        picked, here = event.node.data or "", self._catalog.current_id
        if picked != here and self._tip_of(picked) == here:
            self.notify("It was compacted and continues in the open conversation.")
        elif picked:
            self.dismiss(picked)

    def _tip_of(self, part: str) -> str:
        """Follow the compactions of a part to its tip, which opening it would open."""
        while part in self._continued:
            part = self._continued[part]
        return part


def _depth(place: TreeNode[str]) -> int:
    """Count the levels of indentation of a child of a node."""
    return 1 + (_depth(place.parent) if place.parent is not None else 0)


def label_of(node: results.TreeNode, here: str, now: float, columns: int) -> Text:
    """A line of its own width: a long title is cut, what it is and where one is are not."""
    mark = _MARKS.get(node.relation or "", "")
    facts = [f"{node.message_count} messages", ago(node.started_at, now)]
    rest = f"  {' · '.join(fact for fact in facts if fact)}"
    place = "  ← here" if node.id == here else ""
    room = columns - len(mark) - len(rest) - len(place)
    title = truncate(one_line(node.title or node.preview or node.id), max(room, _SHORTEST))
    return Text.assemble(
        (mark, "italic"), (title, "bold" if place else ""), (rest, "dim"), (place, "bold")
    )

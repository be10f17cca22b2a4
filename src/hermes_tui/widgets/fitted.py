"""Content that is laid out anew for the width it gets, such as columns and numbered lines."""

from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Static


class Fitted(Static):
    """A widget that says for each width which lines it has; they are as long as it is wide at most."""

    def __init__(self, *, classes: str = "") -> None:
        super().__init__(markup=False, classes=classes)
        self._fitted = _FittedVisual(self)

    def lay_out(self, columns: int) -> Content:
        """Return the lines for so many columns."""
        raise NotImplementedError

    def renew(self) -> None:
        """Lay it out again, because it shows something else now."""
        self._fitted.forget()
        self.refresh(layout=True)

    def render(self) -> Visual:
        return self._fitted

    def notify_style_update(self) -> None:
        self._fitted.forget()
        super().notify_style_update()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return what is selected, without the blanks that fill the lines."""
        lines = self._fitted.content(self.content_size.width).plain.split("\n")
        return selection.extract("\n".join(line.rstrip() for line in lines)), "\n"


class _FittedVisual(Visual):
    """Asks the widget for its lines, once for each width."""

    def __init__(self, widget: Fitted) -> None:
        self._widget = widget
        self._columns = -1
        self._content = Content()

    def forget(self) -> None:
        self._columns = -1

    def content(self, columns: int) -> Content:
        if columns != self._columns:
            self._columns, self._content = columns, self._widget.lay_out(max(columns, 1))
        return self._content

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self.content(width).plain.count("\n") + 1

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        rules: RulesMap = {"text_wrap": "nowrap", "text_overflow": "clip"}
        own = RenderOptions(
            options.get_style,
            rules,
            options.selection,
            options.selection_style,
            options.post_style,
        )
        return self.content(width).render_strips(width, height, style, own)

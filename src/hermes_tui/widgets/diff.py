"""Unified diffs, told apart by sign and colour."""

from textual.content import Content

_STYLES = {"+": "$text-success", "-": "$text-error", "@": "$text-accent"}


def rendered(text: str, limit: int | None = None) -> Content:
    """The lines of a diff, at most `limit` of them; the rest is counted."""
    lines = [line for line in text.strip("\n").split("\n") if not line.startswith(("--- ", "+++ "))]
    visible = lines if limit is None or len(lines) <= limit + 1 else lines[:limit]
    styled = [Content.styled(line, _STYLES.get(line[:1], "dim")) for line in visible]
    if len(visible) < len(lines):
        styled.append(Content.styled(f"… {len(lines) - len(visible)} more lines", "dim italic"))
    return Content("\n").join(styled)


def counted(text: str) -> tuple[int, int]:
    """Count the lines that a diff adds and removes."""
    lines = text.split("\n")
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return added, removed

"""The rules of .gitignore files that hold in a folder, applied by pathspec."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes_agent.sandbox import strict_open

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


_MAX_BYTES = 1024 * 1024


class Ignored(NamedTuple):
    """The rules of a folder and of the folders above it, the nearest first."""

    specs: "tuple[tuple[Path, GitIgnoreSpec], ...]" = ()

    @classmethod
    def of(cls, top: Path) -> "Ignored":
        """Read the rules of the folders above, up to the one with the repository."""
        above: list[Path] = []
        for folder in (top, *top.parents):
            if folder != top:
                above.append(folder)
            if (folder / ".git").exists():
                break
        else:
            above = []
        ignored = cls()
        for folder in reversed(above):
            ignored = ignored.below(folder)
        return ignored

    def below(self, folder: Path) -> "Ignored":
        """Add the rules of this folder's own file."""
        try:
            with os.fdopen(strict_open.read_from(str(folder / ".gitignore")), "rb") as file:
                text = file.read(_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return self
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 -- only a search that meets rules pays for it

        spec = GitIgnoreSpec.from_lines(text.splitlines())
        return Ignored(((folder, spec), *self.specs))

    def covers(self, path: Path, *, is_folder: bool) -> bool:
        """Return whether git ignores a path; the nearest file with a rule that matches decides."""
        for folder, spec in self.specs:
            relative = path.relative_to(folder).as_posix()
            decision = spec.check_file(f"{relative}/" if is_folder else relative).include
            if decision is not None:
                return decision
        return False

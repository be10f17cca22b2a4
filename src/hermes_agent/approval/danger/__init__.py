"""Find what makes a call dangerous: destruction, privilege, data leaving, secrets, work elsewhere.

Reading shell and Python is loaded with the first command that has to be read: most turns have none.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.approval.danger import places
from hermes_agent.approval.danger.kinds import Access, Danger, Kind, access_of

if TYPE_CHECKING:
    from hermes_agent.approval.danger.command import Lines

__all__ = ["Access", "Danger", "Kind", "access_of", "lines_of", "of_code", "of_command"]


def of_command(
    command: str, cwd: Path, workspace: Path, home: Path, outputs: Path | None = None
) -> list[Danger]:
    """The dangers of a line of shell."""
    from hermes_agent.approval.danger import command as reading  # noqa: PLC0415 -- see above

    return reading.of_command(command, str(cwd), places.place_of(workspace, home, outputs))


def of_code(
    source: str, cwd: Path, workspace: Path, home: Path, outputs: Path | None = None
) -> list[Danger]:
    """The dangers of a piece of Python."""
    from hermes_agent.approval.danger import command as reading  # noqa: PLC0415 -- see above

    return reading.of_code(source, str(cwd), places.place_of(workspace, home, outputs))


def lines_of(command: str) -> "Lines":
    """The single commands of a line of shell."""
    from hermes_agent.approval.danger import command as reading  # noqa: PLC0415 -- see above

    return reading.lines_of(command)

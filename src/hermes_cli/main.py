"""The `hermes` command: its entry point and the last error boundary."""

import os
import sys

from hermes_core.version import VERSION


def main() -> None:
    """Run the command line; `--version` and the terminal UI start without the rest."""
    _ensure_streams()
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        _print_version()
        return
    if not arguments:
        _open_interface()
    from hermes_cli.commands.root import run  # noqa: PLC0415 -- see the docstring

    sys.exit(run(arguments))


def _print_version() -> None:
    """Print the version; exit with status 1 if stdout cannot be written."""
    try:
        sys.stdout.write(f"hermes {VERSION}\n")
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"hermes: {error.strerror}.\n")
        # Otherwise the interpreter would write again at exit and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _ensure_streams() -> None:
    """Replace closed output streams by /dev/null."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for good
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _open_interface() -> None:
    """Run the terminal UI if this terminal can show it; return if not, or if it fails."""
    from hermes_cli import interface  # noqa: PLC0415 -- see above

    if interface.is_possible() and interface.is_installed() and not interface.is_first_run():
        from hermes_core.errors import HermesError  # noqa: PLC0415 -- see above

        try:
            sys.exit(interface.run_default())
        except HermesError:
            return  # the command line reports the error


if __name__ == "__main__":
    main()

"""The `hermes` command: its entry point and the last error boundary."""

import os
import sys

from hermes_core.version import VERSION


def main() -> None:
    """Run the command line. What is asked for most often does not wait for the rest to load."""
    _have_streams()
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        _tell_version()
        return
    if not arguments:
        _open_interface()
    from hermes_cli.commands.root import run  # noqa: PLC0415 -- see the docstring

    sys.exit(run(arguments))


def _tell_version() -> None:
    """Print it; where there is no room for that, say so and end."""
    try:
        sys.stdout.write(f"hermes {VERSION}\n")
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"hermes: {error.strerror}.\n")
        # What could not be written would be tried again when the process ends, and complained about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _have_streams() -> None:
    """Return who starts us may have closed them; what is printed then goes nowhere."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for good
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _open_interface() -> None:
    """Start the terminal UI where there is a terminal for it; else, or when it fails, go on."""
    from hermes_cli import interface  # noqa: PLC0415 -- see above

    if interface.is_possible() and interface.is_installed():
        from hermes_core.errors import HermesError  # noqa: PLC0415 -- see above

        try:
            sys.exit(interface.alone())
        except HermesError:
            return  # the command line says what is wrong, in its own way


if __name__ == "__main__":
    main()

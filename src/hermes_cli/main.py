"""The `hermes` command: its entry point and the last error boundary."""

import sys

from hermes_core.version import VERSION


def main() -> None:
    """Run the command line; scripts ask for the version often, so that costs no further import."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"hermes {VERSION}\n")
        return
    from hermes_cli.commands.root import run  # noqa: PLC0415 -- see the docstring

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

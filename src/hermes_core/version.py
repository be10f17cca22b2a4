"""The version of the program, in the one place that is cheap to read."""

VERSION = "0.1.0"


def install_command(extra: str) -> str:
    """Return the command that installs an extra. Another project owns the name `hermes` on PyPI."""
    return f"pip install -e '.[{extra}]' (in the clone of Hermes)"

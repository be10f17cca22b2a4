"""The looks of the interface; those that Textual brings can be chosen as well."""

from textual.theme import Theme

DARK = Theme(
    name="hermes-dark",
    primary="#8ab4f8",
    secondary="#c3a6ff",
    accent="#f2b45c",
    foreground="#e3e6ee",
    background="#14161c",
    surface="#1b1e26",
    panel="#252a35",
    success="#7fd18b",
    warning="#f0c26a",
    error="#f2777a",
    dark=True,
)

LIGHT = Theme(
    name="hermes-light",
    primary="#1f5fbf",
    secondary="#7a3fb0",
    accent="#a85f00",
    foreground="#1d2129",
    background="#fbfbfd",
    surface="#f1f3f7",
    panel="#e3e7ee",
    success="#2c7a3f",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
)

ALL = (DARK, LIGHT)
DEFAULT = DARK.name

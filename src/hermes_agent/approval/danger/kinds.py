"""One reason to ask a person first, and the kinds of reasons there are."""

from typing import Literal, NamedTuple

Kind = Literal["destructive", "privilege", "exfiltration", "secrets", "outside", "remote_code"]


class Danger(NamedTuple):
    """One reason to ask a person first."""

    kind: Kind
    reason: str
    """For the person: what would happen, as a sentence without its full stop."""
    key: str
    """What a lasting yes is remembered for, for example `terminal:rm -r`."""

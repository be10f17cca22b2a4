"""Moments in words."""

_UNITS = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


def ago(moment: float | None, now: float) -> str:
    """Format the time since a moment, in the largest unit that fits."""
    if moment is None:
        return ""
    past = max(0.0, now - moment)
    for seconds, unit in _UNITS:
        if past >= seconds:
            return f"{past / seconds:.0f} {unit} ago"
    return "now"

"""The page of pinned names and the code say the same."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pins.md"
ROWS = re.findall(r"^\| `([\w.]+)` \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def named(path: str) -> Any:
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{path} cannot be imported")


def plain(function: Any) -> str:
    """The signature without its types."""
    parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))


@pytest.mark.parametrize(("path", "signature"), ROWS)
def test_a_pinned_name_exists_with_the_signature_on_its_page(path: str, signature: str) -> None:
    found = named(path)
    if signature.startswith("`"):
        assert signature.strip("`") == plain(found)


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 5

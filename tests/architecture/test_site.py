"""The site of docs/ builds, needs no other server, and fails on a dead link or a missing page."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 25.0


def build(root: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", str(root / "mkdocs.yml"), "-d", str(site)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of all that the site is made of."""
    root = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", root / "docs")
    for path in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "scripts" / "site.py"):
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    for folder in ("src", "tests"):  # pages link to files in them
        (root / folder).symlink_to(ROOT / folder)
    return root


def test_the_site_has_every_page_and_a_search(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file()
    assert "test_crash.py" not in (tmp_path / "404.html").read_text("utf-8")
    index = (tmp_path / "search" / "search_index.json").read_text("utf-8")
    assert "gateway setup telegram" in index and "project/changelog.html" in index


def test_a_link_of_the_changelog_leads_to_the_page_of_the_site(tmp_path: Path) -> None:
    assert build(ROOT, tmp_path).returncode == 0
    changelog = (tmp_path / "project" / "changelog.html").read_text("utf-8")
    assert 'href="../guide/compaction.html"' in changelog
    security = (tmp_path / "security-model.html").read_text("utf-8")
    assert "test_access.py" in security and 'test_access.py"' not in security


@pytest.mark.parametrize(
    ("page", "text", "reason"),
    [
        ("docs/index.md", "[a page](guide/nowhere.md)", "guide/nowhere.md"),
        ("docs/index.md", "[a test](../tests/nowhere.py)", "tests/nowhere.py"),
        ("docs/index.md", "[a heading](guide/tools.md#nowhere)", "nowhere"),
        ("docs/index.md", "![a picture](images/nowhere.svg)", "nowhere.svg"),
        ("docs/index.md", '<img src="https://example.org/a.png">', "https://example.org/a.png"),
        ("docs/guide/lost.md", "# In no menu", "guide/lost.md"),
        ("CHANGELOG.md", "[a page](docs/guide/nowhere.md)", "nowhere.md"),
    ],
)
def test_a_mistake_fails_the_build_and_is_named(
    copy: Path, tmp_path: Path, page: str, text: str, reason: str
) -> None:
    with (copy / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert re.search(
        rf"(WARNING|ERROR|Error|site\.py).*{re.escape(reason)}", done.stderr + done.stdout, re.S
    )
